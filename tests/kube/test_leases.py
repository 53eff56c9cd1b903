"""Leader election: the rule by itself, then two candidates over a real server."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from extender.config.settings import Settings
from extender.kube.client import KubeClient
from extender.kube.errors import ApiError, KubeError
from extender.kube.leases import Elector, LeaseSettings, LeaseStep, ObservedLease, decide
from extender.runtime.leadership import lease_settings
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import until
from tests.world.clock import Clock


def observed(holder: str, since: float = 0.0) -> ObservedLease:
    return ObservedLease(holder=holder, duration_seconds=15, version="1", since=since)


def settings(identity: str, **changes: float) -> LeaseSettings:
    return LeaseSettings(namespace="kube-system", name="extender", identity=identity, **changes)  # type: ignore[arg-type]


def candidate(client: KubeClient, identity: str, clock: Clock) -> Elector:
    return Elector(client, settings(identity), clock=clock, wall=lambda: 1_700_000_000.0 + clock.now)


def test_the_rule() -> None:
    assert decide(None, identity="a", now=0.0) is LeaseStep.CREATE
    assert decide(observed("a"), identity="a", now=100.0) is LeaseStep.RENEW
    assert decide(observed(""), identity="a", now=0.0) is LeaseStep.TAKE
    assert decide(observed("b"), identity="a", now=5.0) == 10.0
    assert decide(observed("b"), identity="a", now=15.0) is LeaseStep.TAKE


@pytest.mark.parametrize("changes", [{"renew_seconds": 15.0}, {"retry_seconds": 10.0}, {"retry_seconds": 0.0}])
def test_times_that_make_two_leaders_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="duration_seconds > renew_seconds"):
        settings("a", **changes)


def test_the_first_leads_and_the_second_waits(server: FakeApiServer, client: KubeClient) -> None:
    clock = Clock()
    a, b = candidate(client, "a", clock), candidate(client, "b", clock)
    a.step()
    b.step()

    assert (a.leads, b.leads, b.holder) == (True, False, "a")
    lease = server.leases.get("extender", "kube-system")
    assert lease is not None
    assert lease["spec"]["acquireTime"] == "2023-11-14T22:30:00.000000Z"


def test_a_leader_that_falls_silent_is_replaced_and_knows_it_first(client: KubeClient) -> None:
    clock = Clock()
    a, b = candidate(client, "a", clock), candidate(client, "b", clock)
    a.step()
    b.step()
    leaders = []
    while not b.leads:
        clock.now += 0.5
        b.step()
        leaders.append(a.leads + b.leads)

    assert max(leaders) == 1
    assert clock.now - 1000.0 == 15.0
    assert b.term == 1
    a.step()
    assert (a.leads, a.holder, a.term) == (False, "b", 1)


def test_a_leader_that_renews_stays(client: KubeClient) -> None:
    clock = Clock()
    a, b = candidate(client, "a", clock), candidate(client, "b", clock)
    for _ in range(30):
        a.step()
        b.step()
        assert (a.leads, b.leads) == (True, False)
        clock.now += 3.0

    assert a.term == 0


def test_of_two_that_take_over_at_once_one_gets_it(server: FakeApiServer, client: KubeClient) -> None:
    clock = Clock()
    old, a, b = (candidate(client, name, clock) for name in ("old", "a", "b"))
    old.step()
    a.step()
    b.step()
    clock.now += 16.0
    b._read()
    a.step()
    with pytest.raises(ApiError, match="409"):
        b._write("PUT", b._spec(transitions=1, acquired=True))
    b.step()

    assert (a.leads, b.leads) == (True, False)
    assert server.leases.get("extender", "kube-system")["spec"]["holderIdentity"] == "a"  # type: ignore[index]


def test_a_leader_cut_off_from_the_server_stops_leading(server: FakeApiServer, client: KubeClient) -> None:
    clock = Clock()
    a = candidate(client, "a", clock)
    a.step()
    server.faults.fail(100, 503)
    clock.now += 9.0
    with pytest.raises(KubeError):
        a.step()

    assert a.leads
    clock.now += 1.5
    assert not a.leads


def test_a_lease_deleted_by_hand_starts_a_new_term(server: FakeApiServer, client: KubeClient) -> None:
    clock = Clock()
    a = candidate(client, "a", clock)
    a.step()
    server.leases.delete("extender", "kube-system")
    a.step()

    assert (a.leads, a.term) == (True, 1)


def test_a_leader_that_stops_hands_over_at_once(server: FakeApiServer, client: KubeClient) -> None:
    """Only the release lets the other lead: the lease would last an hour, and two were refused that end together."""
    quick = {"retry_seconds": 0.5, "renew_seconds": 1800.0, "duration_seconds": 3600}
    a, b = Elector(client, settings("a", **quick)), Elector(client, settings("b", **quick))
    a.start()
    until(lambda: a.leads)
    b.start()
    until(lambda: b.holder == "a")
    a.stop()

    assert not a.leads
    until(lambda: b.leads)
    b.stop()
    lease = server.leases.get("extender", "kube-system")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 1)


class Play:
    """Candidates in one virtual time; each acts when it has said, by a clock that runs at a speed of its own."""

    def __init__(self, client: KubeClient, speeds: list[float], chance: random.Random) -> None:
        self.now = 0.0
        own = Settings(lease="on")
        self.binding_seconds, self.duration_seconds = own.binding_seconds, own.lease_seconds
        self.speeds = speeds
        self.electors = [
            Elector(client, lease_settings(own), clock=self._clock(speed), random=chance.random) for speed in speeds
        ]
        self.due = [chance.random() for _ in speeds]
        self.dead: set[int] = set()

    def _clock(self, speed: float) -> Callable[[], float]:
        return lambda: 1000.0 + self.now * speed

    def next_step(self) -> int:
        """Go on to the next that is due, and let it act; returns which."""
        index = min((i for i in range(len(self.due)) if i not in self.dead), key=self.due.__getitem__)
        self.now = self.due[index]
        try:
            pause = self.electors[index].step()
        except KubeError:
            pause = self.electors[index]._pause()
        self.due[index] = self.now + pause / self.speeds[index]
        return index

    def leaders(self) -> list[int]:
        return [i for i, elector in enumerate(self.electors) if elector.leads and i not in self.dead]


def test_a_killed_leader_is_replaced_within_eight_seconds(server: FakeApiServer, client: KubeClient) -> None:
    waits = []
    for seed in range(25):
        server.store.clear()
        play = Play(client, [1.0, 1.0], random.Random(seed))
        while play.next_step() not in play.leaders() or play.now < 20.0:
            pass  # until the leader has just renewed, the worst moment
        (leader,) = play.leaders()
        play.dead.add(leader)
        killed_at = play.now
        while not play.leaders():
            play.next_step()
        waits.append(play.now - killed_at)

    assert min(waits) > 6.0
    assert max(waits) < 8.0


@pytest.mark.parametrize("seed", range(6))
def test_no_binding_is_under_way_when_another_leads_even_if_clocks_differ(
    server: FakeApiServer, client: KubeClient, seed: int
) -> None:
    """Clocks differ by up to 45 %, a third of all calls fails, leaders fall silent; bindings take all their time."""
    chance = random.Random(seed)
    play = Play(client, [chance.uniform(1.0, 1.45) for _ in range(3)], chance)
    busy_until: dict[int, float] = {}  # by candidate: when its last binding ends, in real time
    terms = set()
    for _ in range(600):
        if chance.random() < 0.33:
            server.faults.fail(1, 503)
        index = play.next_step()
        server.faults.clear()
        leaders = play.leaders()
        assert len(leaders) <= 1
        for leader in leaders:
            terms.add(play.electors[leader].term)
            assert all(end <= play.now for other, end in busy_until.items() if other != leader)
            if play.electors[leader].leads_for(play.binding_seconds):
                busy_until[leader] = play.now + play.binding_seconds / play.speeds[leader]
        if index in leaders and chance.random() < 0.08:
            play.due[index] += 2 * play.duration_seconds  # it falls silent, and comes back later

    assert len(terms) > 3


def test_a_leader_sends_one_call_a_look_and_a_standby_one(server: FakeApiServer, client: KubeClient) -> None:
    play = Play(client, [1.0, 1.0], random.Random(1))
    while play.now < 7.0:
        play.next_step()
    server.access.calls.clear()
    while play.now < 77.0:
        play.next_step()
    calls = Counter({call.verb: number for call, number in server.access.calls.items()})

    assert calls.keys() == {"get", "update"}
    assert all(90 < number < 110 for number in calls.values())  # in 70 s
