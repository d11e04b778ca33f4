'use strict';
// An application on rhea, which reconnects as rhea does: over all members in turn, by its own backoff.
//
//     node rhea_client.js send    MEMBERS ADDRESS COUNT   until COUNT are settled after a loss
//     node rhea_client.js receive MEMBERS ADDRESS COUNT   until COUNT different numbers came, with a loss between
//     node rhea_client.js echo    MEMBERS ADDRESS         answers requests until it is killed
//     node rhea_client.js select  MEMBERS ADDRESS COUNT   until COUNT came that a selector selects
//     node rhea_client.js modify  MEMBERS ADDRESS COUNT   returns a message COUNT times, each with annotations
//     node rhea_client.js browse  MEMBERS ADDRESS COUNT   looks at COUNT messages and leaves them there
//
// A passive member's redirect is not followed by rhea, and ends a connection for good unless the application
// says otherwise (`non_fatal_errors`); then the next member is tried.  A message that was not settled at a loss
// is the application's to send again.

const rhea = require('rhea');

const [role, members, address, count] = process.argv.slice(2);
const hosts = members.split(',').map((member) => {
    const [host, port] = member.split(':');
    return { host, port: Number(port) };
});
const say = (...words) => console.log(...words);
const container = rhea.create_container();

let turn = 0, losses = 0, usable = false;
function connect() {
    return container.connect({
        username: 'anonymous',
        connection_details: () => hosts[turn++ % hosts.length],
        non_fatal_errors: ['amqp:connection:forced', 'amqp:connection:redirect', 'amqp:resource-limit-exceeded'],
    });
}
container.on('connection_error', (context) => say('refused', context.connection.error.condition));
container.on('connection_close', () => {});
container.on('session_open', () => { usable = true; });
container.on('disconnected', () => {
    if (usable) losses++;
    usable = false;
});

const roles = {
    send() {
        const goal = Number(count), underWay = new Map(), again = [];
        let next = 0, settled = 0, left = goal;
        container.on('sendable', (context) => fill(context.sender));
        container.on('disconnected', () => {
            again.push(...underWay.values());
            underWay.clear();
            left = goal;
        });
        container.on('accepted', (context) => {
            underWay.delete(context.delivery.id);
            settled++;
            left--;
            if (settled === goal) say('settled', settled);
            if (losses > 0 && left <= 0) {
                if (underWay.size === 0) {
                    say('sent', next);
                    context.connection.close();
                }
                return;
            }
            fill(context.sender);
        });
        function fill(sender) {
            while (usable && sender.sendable() && underWay.size < 100) {
                const number = again.length > 0 ? again.shift() : next++;
                underWay.set(sender.send({ body: number, durable: true }).id, number);
            }
        }
        connect().open_sender(address);
    },

    receive() {
        const seen = new Set();
        let links = 0;
        // The first link is given half of the messages, so that the loss comes in the midst.
        container.on('receiver_open', (context) => {
            context.receiver.add_credit(links++ === 0 ? Math.floor(Number(count) / 2) : 2 * Number(count));
        });
        container.on('message', (context) => {
            seen.add(context.message.body);
            if (seen.size === Math.floor(Number(count) / 2)) say('half');
            if (seen.size === Number(count)) {
                say('all');
                context.connection.close();
            }
        });
        connect().open_receiver({ source: address, credit_window: 0 });
    },

    echo() {
        const connection = connect();
        const answers = connection.open_sender({ target: {} });
        container.on('message', ({ message }) => {
            answers.send({ ...message, to: message.reply_to });
        });
        container.once('sendable', () => say('listening'));
        connection.open_receiver(address);
    },

    select() {
        let left = Number(count);
        container.on('message', (context) => {
            say('message', context.message.body);
            context.delivery.accept();
            if (--left === 0) context.connection.close();
        });
        connect().open_receiver({ source: { address, filter: rhea.filter.selector("colour = 'green'") } });
    },

    modify() {
        let attempt = 0;
        container.on('message', (context) => {
            say('message', JSON.stringify(context.message.message_annotations || {}));
            if (++attempt > Number(count)) {
                context.delivery.accept();
                context.connection.close();
            } else {
                context.delivery.modified({
                    delivery_failed: true,
                    message_annotations: { 'x-attempt': attempt, ['x-of-' + attempt]: 'rhea' },
                });
                context.receiver.add_credit(1);
            }
        });
        container.on('receiver_open', (context) => context.receiver.add_credit(1));
        connect().open_receiver({ source: address, credit_window: 0, autoaccept: false });
    },

    browse() {
        let left = Number(count);
        container.on('message', (context) => {
            say('message', context.message.body);
            if (--left === 0) context.connection.close();
        });
        connect().open_receiver({ source: { address, distribution_mode: 'copy' } });
    },
};
roles[role]();
