"""Links attach all at once, or each after the answer to the one before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from haclient.core.attach.queue import AttachQueue
from haclient.testing.virtual_clock import VirtualTime


@dataclass(eq=False)
class Link:
    name: str
    answers_at_once: bool = False
    unanswered: bool = False


class Links:
    def __init__(self, *names: str) -> None:
        self.every = [Link(name) for name in names]
        self.attached = ""

    def attach(self, link: Link) -> None:
        self.attached += link.name
        link.unanswered = not link.answers_at_once


def queue(links: Links) -> AttachQueue[Link]:
    return AttachQueue(asyncio.get_running_loop(), links.attach, 10.0)


async def test_all_at_once() -> None:
    links = Links(*"abc")
    queue(links).begin(links.every, one_by_one=False)
    assert links.attached == "abc"


async def test_one_by_one_also_those_that_are_created_meanwhile() -> None:
    links = Links(*"abcd")
    a, b, c, d = links.every
    b.answers_at_once = True
    waiting = queue(links)
    waiting.begin([a, b, c], one_by_one=True)
    waiting.add(d)
    assert links.attached == "a"
    waiting.remove(c)  # closed before its turn
    waiting.remove(a)
    assert links.attached == "abd"


async def test_the_end_of_the_session_ends_the_queue() -> None:
    links = Links(*"ab")
    waiting = queue(links)
    waiting.begin(links.every, one_by_one=True)
    waiting.clear()
    waiting.remove(links.every[0])
    assert links.attached == "a"


def test_an_answer_that_never_arrives_holds_up_nobody_for_ever(haclient_virtual_time: VirtualTime) -> None:
    async def main() -> None:
        links = Links(*"ab")
        queue(links).begin(links.every, one_by_one=True)
        await asyncio.sleep(9.9)
        assert links.attached == "a"
        await asyncio.sleep(0.2)
        assert links.attached == "ab"

    haclient_virtual_time.run(main())
