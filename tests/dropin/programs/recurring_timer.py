"""Tick a few times; another timer is cancelled."""

from proton.reactor import Container, Handler


class Recurring(Handler):
    def __init__(self, period, ticks):
        self.period = period
        self.ticks = ticks

    def on_reactor_init(self, event):
        self.container = event.reactor
        self.container.schedule(self.period, self)
        self.container.schedule(0.05, Never()).cancel()

    def on_timer_task(self, event):
        print("tick", self.ticks, event.task.container == self.container)
        self.ticks -= 1
        if self.ticks:
            self.container.schedule(self.period, self)

    def on_reactor_final(self, event):
        print("over")


class Never(Handler):
    def on_timer_task(self, event):
        print("a timer that was cancelled")


container = Container(Recurring(0.01, 5))
container.run()
