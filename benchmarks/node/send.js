'use strict';
// Sends pipelined with rhea and prints what it took, for bench_clients.py:
//
//     node send.js HOST:PORT ADDRESS COUNT WARM WINDOW SIZE durable|not-durable
//
// WARM messages go first and are not counted.  At most WINDOW messages have no outcome.  One line of JSON:
// seconds by the clock and of processor time.

const rhea = require('rhea');

const [member, address, ...numbers] = process.argv.slice(2, 8);
const [count, warm, window, size] = numbers.map(Number);
const durable = process.argv[8] === 'durable';
const [host, port] = member.split(':');
const body = Buffer.alloc(size, 'x');

let sent = 0, settled = 0, goal = warm, wall, cpu;

function fill(sender) {
    while (sent < goal && sent - settled < window && sender.sendable()) {
        sender.send({ durable, body: rhea.message.data_section(body) });
        sent++;
    }
}

function start() {
    goal = warm + count;
    wall = process.hrtime.bigint();
    cpu = process.cpuUsage();
}

const container = rhea.create_container();
container.on('sendable', (context) => fill(context.sender));
container.on('accepted', (context) => {
    settled++;
    if (settled === goal) {
        if (goal === warm) {
            start();
        } else {
            const used = process.cpuUsage(cpu);
            const seconds = Number(process.hrtime.bigint() - wall) / 1e9;
            console.log(JSON.stringify({ wall: seconds, cpu: (used.user + used.system) / 1e6 }));
            context.connection.close();
            return;
        }
    }
    fill(context.sender);
});
for (const failure of ['rejected', 'released', 'modified', 'connection_error', 'disconnected', 'error']) {
    container.on(failure, (context) => {
        console.error(failure, context.error || '');
        process.exit(1);
    });
}
if (warm === 0) start();
container.connect({ host, port: Number(port), username: 'anonymous', reconnect: false }).open_sender(address);
