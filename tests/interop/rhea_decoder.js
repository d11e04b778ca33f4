'use strict';
// What rhea reads in encoded values: a line of JSON for each line of hexadecimal digits on standard input.
//
//     node rhea_decoder.js
//
// rhea finds where each value begins and ends, and its type.  It rounds numbers of 64 bits, so the content of a
// value of fixed width is taken as its bytes.

const types = require('rhea/lib/types');

types.Reader.prototype.read_fixed_width = function (type) {
    return this.read_bytes(type.width);
};

// A value may be described twice, as one that is the body is: rhea would keep the first descriptor.
const read_constructor = types.Reader.prototype.read_constructor;
types.Reader.prototype.read_constructor = function (descriptors) {
    const found = read_constructor.call(this, descriptors);
    return found.descriptors ? { typecode: found.typecode, descriptor: { all: found.descriptors } } : found;
};

const signed = (raw) => BigInt.asIntN(8 * raw.length, unsigned(raw)).toString();
const unsigned = (raw) => raw.length ? BigInt('0x' + raw.toString('hex')) : 0n;
const hex = (raw) => raw.toString('hex');
const FIXED = {
    0x43: ['uint', () => '0'], 0x44: ['ulong', () => '0'],
    0x50: ['ubyte', (raw) => unsigned(raw).toString()], 0x60: ['ushort', (raw) => unsigned(raw).toString()],
    0x52: ['uint', (raw) => unsigned(raw).toString()], 0x70: ['uint', (raw) => unsigned(raw).toString()],
    0x53: ['ulong', (raw) => unsigned(raw).toString()], 0x80: ['ulong', (raw) => unsigned(raw).toString()],
    0x51: ['byte', signed], 0x61: ['short', signed], 0x54: ['int', signed], 0x71: ['int', signed],
    0x55: ['long', signed], 0x81: ['long', signed], 0x83: ['timestamp', signed],
    0x41: ['bool', () => true], 0x42: ['bool', () => false], 0x56: ['bool', (raw) => raw[0] !== 0],
    0x72: ['float', hex], 0x82: ['double', hex], 0x73: ['char', hex], 0x98: ['uuid', hex],
    0x74: ['decimal32', hex], 0x84: ['decimal64', hex], 0x94: ['decimal128', hex],
    0xa0: ['binary', hex], 0xb0: ['binary', hex],
    0xa1: ['string', (text) => text], 0xb1: ['string', (text) => text],
    0xa3: ['symbol', (text) => text], 0xb3: ['symbol', (text) => text],
};

function facts(item) {
    const descriptors = item.descriptor === undefined ? [] : item.descriptor.all || [item.descriptor];
    return descriptors.reduceRight((value, each) => ['described', facts(each), value], content(item));
}

function content(item) {
    const code = item.type.typecode;
    switch (code) {
    case 0x40: return ['null'];
    case 0x45: return ['list', []];
    case 0xc0: case 0xd0: return ['list', item.value.map(facts)];
    case 0xc1: case 0xd1: return ['map', item.value.map(facts)];
    case 0xe0: case 0xf0: return array(item);
    default: return [FIXED[code][0], FIXED[code][1](item.value)];
    }
}

function array(item) {
    const { typecode, descriptor } = item.array_constructor;
    return ['array', typecode, descriptor === undefined ? null : facts(descriptor), item.value.map(content)];
}

for (const line of require('fs').readFileSync(0, 'utf8').split('\n').filter((each) => each)) {
    const reader = new types.Reader(Buffer.from(line, 'hex'));
    const found = [];
    while (reader.remaining()) found.push(facts(reader.read()));
    console.log(JSON.stringify(found));
}
