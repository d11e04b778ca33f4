'use strict';
// An application on rhea, whose own reconnect asks the application for the next member: the one that the
// last redirect named, or the next one in the list.  The application sends again, in order, what had no
// outcome at a loss.
//
//     node client.js send    MEMBERS QUEUE PRODUCER RATE WINDOW
//     node client.js receive MEMBERS QUEUE
//
// A user, a password or token, and the SASL mechanism, PLAIN or XOAUTH2, come in the environment: CLIENT_USER,
// CLIENT_PASSWORD, CLIENT_MECHANISM.

const rhea = require('rhea');

const [role, members, queue, producer, rate, window] = process.argv.slice(2);
const say = (...words) => console.log(words.join(' '));
const all = members.split(',').map((member) => {
    const [host, port] = member.split(':');
    return { host, port: Number(port) };
});
const container = rhea.create_container();
let turn = 0, redirect = null, member = null, usable = false, stopping = false;

function next() {
    member = redirect || all[turn++ % all.length];
    redirect = null;
    return member;
}

container.on('connection_error', (context) => {
    const { condition, description } = context.error;
    console.error(condition, description);
    if (condition === 'amqp:connection:redirect') {
        const { info } = context.connection.error;
        redirect = { host: info['network-host'], port: info.port };
        say('redirected', `${redirect.host}:${redirect.port}`);
    }
});
container.on('connection_close', () => {});
container.on('session_open', () => {
    usable = true;
    say('connected', `${member.host}:${member.port}`);
});
container.on('disconnected', () => { usable = false; });

const { CLIENT_USER, CLIENT_PASSWORD, CLIENT_MECHANISM } = process.env;
const connection = container.connect({
    username: CLIENT_USER || 'anonymous',
    [CLIENT_MECHANISM === 'XOAUTH2' ? 'token' : 'password']: CLIENT_PASSWORD,
    connection_details: next,
    initial_reconnect_delay: 50,
    max_reconnect_delay: 250,
    // A passive member's redirect ends a connection for good otherwise.
    non_fatal_errors: ['amqp:connection:forced', 'amqp:connection:redirect', 'amqp:resource-limit-exceeded'],
});

function message(number) {
    const filling = `${number.toString(16)}.`;
    return {
        durable: true,
        application_properties: { _AMQ_DUPL_ID: `${producer}-${number}` },
        body: `${producer} ${number} ${filling.length} ${filling}`,
    };
}

const roles = {
    send() {
        const pending = new Map();
        let again = [], fresh = 0;
        const sender = connection.open_sender(queue);
        container.on('disconnected', () => {
            again = [...pending.values(), ...again];
            pending.clear();
        });
        const settle = (word) => ({ delivery }) => {
            say(word, pending.get(delivery.id));
            pending.delete(delivery.id);
        };
        container.on('accepted', settle('accepted'));
        for (const outcome of ['rejected', 'released', 'modified']) container.on(outcome, settle('refused'));
        const timer = setInterval(() => {
            if (stopping && pending.size + again.length === 0) {
                clearInterval(timer);
                connection.close();
            } else if (usable && sender.sendable() && pending.size < Number(window)) {
                if (again.length === 0 && stopping) return;
                if (again.length === 0) {
                    say('sent', fresh);
                    again.push(fresh++);
                }
                const number = again.shift();
                pending.set(sender.send(message(number)).id, number);
            }
        }, 1000 / Number(rate));
        return () => {};
    },

    receive() {
        let link = 0;
        container.on('receiver_open', () => { link++; });
        container.on('message', ({ message }) => {
            say('received', link, message.delivery_count || 0, message.body);
        });
        connection.open_receiver(queue);
        return () => connection.close();
    },
};

const stop = roles[role]();
process.stdin.on('end', () => {
    stopping = true;
    stop();
});
process.stdin.resume();
