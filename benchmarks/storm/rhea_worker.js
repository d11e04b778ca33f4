'use strict';
// The worker of kind `rhea`: connections of rhea with its default reconnect, over all members in turn.
//
// rhea reconnects by itself after a lost socket and after a Close with `amqp:connection:forced`.  A Close
// with any other condition, a passive member's redirect for one, ends the connection for good
// (`non_fatal_errors` in lib/connection.js).  An application that wants to live then connects again; this
// one does, with rhea's own first delay, factor and cap, and tells of each time (`redial`).
//
// The commands and the lines are those of lines.py; the clock is CLOCK_MONOTONIC.

const readline = require('readline');
const { parseArgs } = require('util');
const rhea = require('rhea');

const FLUSH_PAUSE = 50; // ms
const FIRST_DELAY = 100, FACTOR = 2, LONGEST_DELAY = 60000; // ms: rhea's own

const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { first: { type: 'string' }, count: { type: 'string' }, address: { type: 'string' }, seed: { type: 'string' } },
});
const first = Number(values.first), count = Number(values.count);
const authority = positionals[0].replace(/^amqp:\/\//, '').replace(/[/?].*$/, '');
const [user, password] = authority.includes('@') ? authority.replace(/@.*$/, '').split(':') : ['anonymous', undefined];
const members = authority.replace(/^.*@/, '').split(',').map((member) => {
    const url = new URL('amqp://' + member);
    return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || 5672 };
});

// Mulberry32: rhea draws nothing itself, so this is the spread of first dials and of messages only.
let state = Number(values.seed) * 1000003 + first;
function random() {
    state = (state + 0x6D2B79F5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
}

const now = () => Number(process.hrtime.bigint()) / 1e9;
let lines = [];
function flush() {
    process.stdout.write(lines.join(''));
    lines = [];
}
function write(what, facts) {
    if (lines.length === 0) setTimeout(flush, FLUSH_PAUSE);
    lines.push(JSON.stringify({ what, ...facts }) + '\n');
}

class Client {
    constructor(number) {
        this.number = number;
        this.usable = false;
        this.turn = 0;
        this.delay = FIRST_DELAY;
        this.waiting = [];
        this.underWay = new Map();
        this.sent = 0;
    }

    obey(command) {
        const act = command.do === 'send' ? () => this.send() : () => this.dial();
        const times = command.do === 'send' ? command.count : 1;
        for (let each = 0; each < times; each++) setTimeout(act, random() * command.over * 1000);
    }

    dial() {
        const container = rhea.create_container();
        const connection = container.connect({
            username: user,
            password,
            connection_details: () => {
                const member = members[this.turn++ % members.length];
                this.write('attempt', { to: `${member.host}:${member.port}` });
                return member;
            },
        });
        this.sender = connection.open_sender(values.address);
        container.on('session_open', () => this.opened());
        container.on('sendable', () => this.sendWaiting());
        container.on('accepted', (context) => this.accepted(context.delivery));
        container.on('disconnected', () => this.lost());
        container.on('connection_error', () => {});
        container.on('connection_close', (context) => this.closed(context.connection));
        container.on('session_error', () => {});
        container.on('sender_error', () => {});
        container.on('error', () => {});
    }

    opened() {
        if (this.usable) return;
        this.usable = true;
        this.delay = FIRST_DELAY;
        this.write('usable');
    }

    lost() {
        this.waiting = [...this.underWay.values(), ...this.waiting].sort((a, b) => a.number - b.number);
        this.underWay.clear();
        if (this.usable) {
            this.usable = false;
            this.write('lost');
        }
    }

    closed(connection) {
        this.lost();
        const error = connection.error;
        if (error && error.condition === 'amqp:connection:forced') return; // rhea dials again
        this.write('redial');
        setTimeout(() => this.dial(), this.delay);
        this.delay = Math.min(LONGEST_DELAY, this.delay * FACTOR);
    }

    send() {
        this.waiting.push({ number: this.sent++, asked: now() });
        this.sendWaiting();
    }

    sendWaiting() {
        while (this.usable && this.waiting.length > 0 && this.sender.sendable()) {
            const message = this.waiting.shift();
            const delivery = this.sender.send({ body: `${this.number}/${message.number}` });
            this.underWay.set(delivery.id, message);
        }
    }

    accepted(delivery) {
        const message = this.underWay.get(delivery.id);
        if (message === undefined) return;
        this.underWay.delete(delivery.id);
        this.write('settled', { number: message.number, took: now() - message.asked });
    }

    write(what, facts) {
        write(what, { client: this.number, at: now(), ...facts });
    }
}

const clients = Array.from({ length: count }, (_, index) => new Client(first + index));
const input = readline.createInterface({ input: process.stdin });
input.on('line', (line) => clients.forEach((client) => client.obey(JSON.parse(line))));
input.on('close', () => process.exit(0));
write('ready', {});
