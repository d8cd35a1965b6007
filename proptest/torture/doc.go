// Package torture holds the promises against real processes: members of a
// cluster, Redis masters, a PostgreSQL behind a gate and workers that use them,
// while a nemesis kills, stops, cuts off, empties and breaks them.
//
// What it does not give: a run that can be repeated. A seed repeats what the
// nemesis tries and what the workers choose, not how the system schedules them.
// A loss of power, a suspended machine and several hosts are not part of it; nor
// are faults of the storage but its crash: the tests of the gates have those.
//
// What happened is told by two witnesses. Each worker prints what it is about to
// do before it does it, and what it was told after, by the one clock that all
// processes of a machine share. The storage keeps a log of every write and every
// mark, in the transaction that made it. Locks are used for a while and then
// left, so that a history ends, and can be judged while the next one goes on.
//
// It runs on Linux only. The nouns, in reading order: [Config] and [Run], the
// whole; [Result], the figures; world, everything that is started; network, by
// which members can be cut off; holder, what a worker does ([Work] is its main
// function); [Storage], where it writes; nemesis, which breaks things; checker,
// which collects histories; history, which is judged.
package torture
