//! An application on fe2o3-amqp, which has no reconnect of its own: the application tries the members in
//! turn, and follows their redirects.  It sends again, in order, what had no outcome at a loss.
//!
//!     client send    MEMBERS QUEUE PRODUCER RATE WINDOW
//!     client receive MEMBERS QUEUE

use std::collections::VecDeque;
use std::error::Error;
use std::io::Read;
use std::time::Duration;

use fe2o3_amqp::connection::Error as ConnectionError;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{self, ErrorCondition, Fields};
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, Header, Message, Outcome};
use fe2o3_amqp::types::primitives::{Symbol, Value};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::watch;
use tokio::time;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
const CREDIT: u32 = 100;

type Failure = Box<dyn Error + Send + Sync>;
type Stopping = watch::Receiver<bool>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let queue = arguments[3].clone();
    let stopping = watch_input();
    let mut program = if arguments[1] == "send" {
        Program::Sending(Sending {
            queue,
            producer: arguments[4].clone(),
            period: Duration::from_secs(1) / arguments[5].parse()?,
            window: arguments[6].parse()?,
            next: 0,
            pending: VecDeque::new(),
        })
    } else {
        Program::Receiving(Receiving { queue, link: 0 })
    };
    let mut members = Members::new(&arguments[2]);
    while let Err(error) = members.visit(&mut program, stopping.clone()).await {
        eprintln!("{error}");
    }
    Ok(())
}

/// Turns true when standard input has ended.
fn watch_input() -> Stopping {
    let (stop, stopping) = watch::channel(false);
    std::thread::spawn(move || {
        let mut ignored = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut ignored);
        let _ = stop.send(true);
    });
    stopping
}

enum Program {
    Sending(Sending),
    Receiving(Receiving),
}

/// The candidates, and the one that a redirect named.
struct Members {
    all: Vec<String>,
    turn: usize,
    redirect: Option<String>,
}

impl Members {
    fn new(argument: &str) -> Self {
        Self {
            all: argument.split(',').map(str::to_owned).collect(),
            turn: 0,
            redirect: None,
        }
    }

    async fn next(&mut self) -> String {
        if let Some(member) = self.redirect.take() {
            return member;
        }
        time::sleep(PAUSE).await;
        self.turn += 1;
        self.all[(self.turn - 1) % self.all.len()].clone()
    }

    /// Uses one connection to one member, and learns from its end where to go next.
    async fn visit(&mut self, program: &mut Program, stopping: Stopping) -> Result<(), Failure> {
        let member = self.next().await;
        let url = format!("amqp://{member}");
        let opening = Connection::builder()
            .container_id(format!("fe2o3-{}", std::process::id()))
            .sasl_profile(SaslProfile::Anonymous)
            .open(url.as_str());
        let mut connection = time::timeout(ATTEMPT_TIMEOUT, opening).await??;
        let used = match time::timeout(ATTEMPT_TIMEOUT, Session::begin(&mut connection)).await {
            Ok(Ok(mut session)) => {
                println!("connected {member}");
                match program {
                    Program::Sending(sending) => sending.run(&mut session, stopping).await,
                    Program::Receiving(receiving) => receiving.run(&mut session, stopping).await,
                }
            }
            Ok(Err(error)) => Err(error.into()),
            Err(timeout) => Err(timeout.into()),
        };
        if let Ok(Err(ConnectionError::RemoteClosedWithError(error))) =
            time::timeout(ATTEMPT_TIMEOUT, connection.close()).await
        {
            self.follow(&error);
        }
        used
    }

    fn follow(&mut self, error: &definitions::Error) {
        let redirect = ErrorCondition::ConnectionError(definitions::ConnectionError::Redirect);
        if let (true, Some(info)) = (error.condition == redirect, &error.info) {
            let target = format!("{}:{}", text(info, "network-host"), text(info, "port"));
            println!("redirected {target}");
            self.redirect = Some(target);
        }
    }
}

fn text(info: &Fields, key: &str) -> String {
    match info.get(&Symbol::from(key)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Uint(number)) => number.to_string(),
        Some(Value::Ushort(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

struct Sending {
    queue: String,
    producer: String,
    period: Duration,
    window: usize,
    next: u32,
    /// Those without an outcome, in order.
    pending: VecDeque<u32>,
}

impl Sending {
    /// Sends over one connection until it is lost (an error) or all is settled.
    async fn run(
        &mut self,
        session: &mut SessionHandle<()>,
        stopping: Stopping,
    ) -> Result<(), Failure> {
        let attaching = Sender::attach(
            session,
            format!("{}-sender", self.producer),
            self.queue.as_str(),
        );
        let mut sender = time::timeout(ATTEMPT_TIMEOUT, attaching).await??;
        let mut outcomes = FuturesOrdered::new();
        let mut again = self.pending.clone();
        let mut ticks = time::interval(self.period);
        while !(*stopping.borrow() && self.pending.is_empty()) {
            let fresh = !*stopping.borrow() && self.pending.len() < self.window;
            tokio::select! {
                Some(outcome) = outcomes.next() => {
                    let accepted = Outcome::is_accepted(&outcome?);
                    let number = self.pending.pop_front().expect("each outcome has its message");
                    println!("{} {number}", if accepted { "accepted" } else { "refused" });
                }
                _ = ticks.tick() => {
                    let number = match again.pop_front() {
                        Some(number) => number,
                        None if fresh => self.fresh(),
                        None => continue,
                    };
                    outcomes.push_back(sender.send_batchable(self.message(number)).await?);
                }
            }
        }
        Ok(())
    }

    fn fresh(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        self.pending.push_back(number);
        println!("sent {number}");
        number
    }

    fn message(&self, number: u32) -> Message<AmqpValue<String>> {
        let filling = format!("{number:x}.");
        let properties = ApplicationProperties::builder()
            .insert("_AMQ_DUPL_ID", format!("{}-{number}", self.producer))
            .build();
        Message::builder()
            .header(Header {
                durable: true,
                ..Default::default()
            })
            .application_properties(properties)
            .value(format!(
                "{} {number} {} {filling}",
                self.producer,
                filling.len()
            ))
            .build()
    }
}

struct Receiving {
    queue: String,
    link: u32,
}

impl Receiving {
    async fn run(
        &mut self,
        session: &mut SessionHandle<()>,
        mut stopping: Stopping,
    ) -> Result<(), Failure> {
        let attaching = Receiver::builder()
            .name(format!("receiver-{}", std::process::id()))
            .source(self.queue.as_str())
            .credit_mode(CreditMode::Auto(CREDIT))
            .attach(session);
        let mut receiver = time::timeout(ATTEMPT_TIMEOUT, attaching).await??;
        self.link += 1;
        loop {
            tokio::select! {
                delivery = receiver.recv::<String>() => {
                    let delivery = delivery?;
                    let count = delivery.message().header.as_ref().map_or(0, |header| header.delivery_count);
                    println!("received {} {count} {}", self.link, delivery.body());
                    receiver.accept(&delivery).await?;
                }
                _ = stopping.wait_for(|stopped| *stopped) => {
                    receiver.close().await?;
                    return Ok(());
                }
            }
        }
    }
}
