"""What an installation looks like from outside: phases, loops, questions that nobody answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.iso.distros import Family
from tasks.reread import WRITES
from tasks.watch import BOUNDS, OFF_SECONDS, Bounds, Sight, Watch

BOUNDS_OF_TESTS = Bounds(total=1000, quiet=100)
MIB = 2**20


def seen(*sights: Sight) -> Watch:
    watch = Watch(began=0.0)
    for sight in sights:
        watch.see(sight)
    return watch


def on(at: float, written: int | None = 0, *, pid: int = 7, uptime: int | None = None) -> Sight:
    return Sight(at, True, pid, int(at) if uptime is None else uptime, written)


def test_a_guest_that_was_not_seen_is_starting() -> None:
    watch = seen()
    assert (watch.phase, str(watch)) == ("starting", "starting")


def test_a_status_becomes_a_sight() -> None:
    status = {"status": "running", "pid": 12, "uptime": 34, "diskwrite": 56}
    assert Sight.of(status, 7.0) == Sight(7.0, True, 12, 34, 56)
    assert Sight.of({"status": "stopped", "uptime": 0}, 8.0) == Sight(8.0, False)


def test_a_status_tells_what_was_read_from_the_install_drive() -> None:
    counters = {"ide2": {"rd_bytes": 78, "wr_bytes": 0}, "scsi0": {"rd_bytes": 9, "wr_bytes": 56}}
    status = {"status": "running", "pid": 12, "uptime": 34, "diskwrite": 56}
    assert Sight.of({**status, "blockstat": counters}, 7.0) == Sight(7.0, True, 12, 34, 56, 78)
    assert Sight.of({**status, "blockstat": {}}, 7.0).read is None


def test_an_installer_is_told_by_what_it_writes() -> None:
    assert seen(on(1), on(2, WRITES - 1)).phase == "starting"
    watch = seen(on(1), on(2, 1400 * MIB))
    assert (watch.phase, str(watch)) == ("installing", "installing, 1.37 GiB written")


def test_a_new_process_and_a_younger_one_are_restarts() -> None:
    assert seen(on(1), on(2, pid=8)).restarts == 1
    assert seen(on(50), on(60, uptime=3)).restarts == 1
    assert seen(on(1), on(2), on(3)).restarts == 0


def test_the_counter_of_a_new_process_begins_anew_and_still_counts() -> None:
    watch = seen(on(1, 0), on(2, 10 * MIB), on(3, 6 * MIB, pid=8))
    assert (watch.phase, watch.written) == ("restarted", 16 * MIB)


def test_two_restarts_without_an_answer_are_a_loop() -> None:
    once = seen(on(1), on(2, pid=8))
    twice = seen(on(1), on(2, pid=8), on(3, pid=9))
    assert not once.looping(BOUNDS_OF_TESTS)
    assert twice.looping(BOUNDS_OF_TESTS)
    assert not twice.looping(BOUNDS["autoyast"])


def reading(*steps: tuple[int, int]) -> Watch:
    """A guest that stays one process; ``steps`` in MiB: read from the ISO, and written, so far."""
    return seen(
        *(
            Sight(float(at), True, 7, at, written * MIB, read * MIB)
            for at, (read, written) in enumerate(steps)
        )
    )


def test_a_boot_from_the_iso_after_the_disk_was_written_is_an_installation_again() -> None:
    watch = reading(
        (0, 0), (300, 0), (310, 10), (900, 2000), (900, 2400), (1050, 2400), (1190, 2400)
    )
    assert (watch.phase, watch.medium.boots, watch.restarts) == ("installing again", 1, 0)
    assert "installing again, as it seems, 2.34 GiB written" in str(watch)
    assert not watch.looping(BOUNDS_OF_TESTS)


def test_two_more_boots_from_the_iso_are_a_loop_though_the_process_stays() -> None:
    once = ((0, 0), (300, 0), (310, 10), (900, 2000), (1200, 2000))
    watch = reading(*once, (1500, 4000), (1800, 4000))
    assert (watch.medium.boots, watch.restarts) == (2, 0)
    assert watch.looping(BOUNDS_OF_TESTS)


def test_an_installed_system_that_looks_into_its_drives_is_no_installation_again() -> None:
    watch = reading((0, 0), (300, 0), (310, 10), (900, 2000), (901, 2000), (903, 2001), (906, 2001))
    assert (watch.phase, watch.medium.boots) == ("installing", 0)


def test_a_guest_that_was_first_seen_in_the_middle_is_not_accused() -> None:
    assert reading((900, 1000), (1200, 1000)).medium.boots == 0


def test_one_long_boot_from_the_iso_counts_once() -> None:
    assert (
        reading(
            (300, 0), (310, 10), (600, 1000), (900, 1000), (1200, 1000), (1500, 1000)
        ).medium.boots
        == 1
    )


def test_a_new_process_that_boots_the_iso_is_a_restart_and_an_installation_again() -> None:
    watch = seen(
        Sight(1, True, 7, 1, 0, 300 * MIB),
        Sight(2, True, 7, 2, 10 * MIB, 310 * MIB),
        Sight(3, True, 7, 3, 900 * MIB, 500 * MIB),
        Sight(4, True, 8, 0, 0, 290 * MIB),
    )
    assert (watch.restarts, watch.medium.boots) == (1, 1)


@given(
    st.integers(min_value=0, max_value=900),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 90)), min_size=1, max_size=50),
)
def test_an_installer_that_writes_what_it_reads_is_never_taken_for_a_new_one(
    boot: int, steps: list[tuple[int, int]]
) -> None:
    read, written, sights = boot, 0, [(0, 0), (boot, 0)]
    for more_read, more_written in steps:
        read, written = read + more_read, written + more_written
        sights.append((read, written))
    assert reading(*sights).medium.boots == 0


def test_a_guest_that_writes_nothing_for_long_is_stuck() -> None:
    watch = seen(on(1), on(20, 5 * MIB), on(119, 5 * MIB))
    assert not watch.stuck(BOUNDS_OF_TESTS, 119)
    watch.see(on(121, 5 * MIB))
    assert watch.stuck(BOUNDS_OF_TESTS, 121)


def test_an_installer_that_never_wrote_is_stuck_from_its_start_on() -> None:
    assert seen(on(1), on(101)).stuck(BOUNDS_OF_TESTS, 101)


def test_an_iso_that_tests_itself_is_a_sign_of_life_until_the_disk_is_written() -> None:
    testing = [Sight(at, True, 7, at, 0, at * MIB) for at in range(0, 500, 20)]
    assert not seen(*testing).stuck(BOUNDS_OF_TESTS, 560)
    assert seen(*testing).stuck(BOUNDS_OF_TESTS, 580)

    asking = [Sight(at, True, 7, at, 0, min(at, 20) * MIB) for at in range(0, 500, 20)]
    assert seen(*asking).stuck(BOUNDS_OF_TESTS, 480)


def test_a_restart_is_a_sign_of_life() -> None:
    assert not seen(on(1), on(99, pid=8), on(150, pid=8)).stuck(BOUNDS_OF_TESTS, 150)


def test_a_server_that_does_not_tell_writes_makes_nobody_stuck() -> None:
    assert not seen(on(1, None), on(900, None)).stuck(BOUNDS_OF_TESTS, 900)


def test_a_guest_that_is_off_for_a_while_is_off() -> None:
    watch = seen(on(1), Sight(10, False), Sight(10 + OFF_SECONDS - 1, False))
    assert (watch.phase, str(watch)) == ("switched off", "switched off")
    assert not watch.off(10 + OFF_SECONDS - 1)
    assert watch.off(10 + OFF_SECONDS)
    watch.see(on(100, pid=8))
    assert not watch.off(10_000)
    assert watch.restarts == 0


@given(st.lists(st.integers(min_value=1, max_value=10 * MIB), min_size=1, max_size=50))
def test_an_installation_that_goes_on_is_neither_stuck_nor_a_loop(steps: list[int]) -> None:
    watch, written = Watch(began=0.0), 0
    for number, step in enumerate(steps):
        written += step
        watch.see(on(99.0 * number, written))
        assert not watch.stuck(BOUNDS_OF_TESTS, 99.0 * number + 99)
        assert not watch.looping(BOUNDS_OF_TESTS)
    assert watch.written == sum(steps)


@given(st.sampled_from(sorted(BOUNDS, key=str)))
def test_an_installer_is_given_up_as_stuck_long_before_its_time_is_over(
    family: Family | None,
) -> None:
    bounds = BOUNDS[family]
    assert bounds.quiet * 3 <= bounds.total or family is None
