package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// survey puts one question to all nodes and waits for the answers, for a while.
// Those that have not come are not known.
func (v *voter) survey(do func(n *redisNode, now time.Duration) quorum.Report, done func([]quorum.Report)) {
	reports := make([]quorum.Report, len(v.w.redises))
	missing, over, life := len(reports), false, v.life
	for i, node := range v.w.redises {
		var answer quorum.Report
		v.w.send(v.party, node.party, true, func() {
			answer = do(node, node.clock.wall(v.w.now))
			v.w.send(node.party, v.party, true, func() {
				if over || life != v.life {
					return
				}
				reports[i] = answer
				if missing--; missing == 0 {
					over = true
					done(reports)
				}
			})
		})
	}
	v.w.timer(v.party, nodeTimeout, func() {
		if !over {
			over = true
			done(reports)
		}
	})
}

// status is what a node says of itself.
func status(n *redisNode, _ time.Duration) quorum.Report {
	return quorum.Report{Known: true, Data: n.data, Doubted: n.doubt, Believed: n.word && n.data, Epoch: n.epoch, Max: n.max}
}

// preparing moves a node to an epoch.
func preparing(epoch uint64, believe bool) func(*redisNode, time.Duration) quorum.Report {
	return func(n *redisNode, _ time.Duration) quorum.Report {
		if r := n.prepare(epoch, believe); r.word == "ok" {
			return quorum.Report{Known: true, Data: true, Epoch: epoch, Max: r.token}
		}
		return quorum.Report{}
	}
}

// look does what epochs.look does in production: it finds the epoch that an
// attempt may carry, and brings emptied nodes back.
func (v *voter) look() {
	if v.looking {
		return
	}
	v.looking = true
	v.survey(status, func(reports []quorum.Report) {
		usable, largest := quorum.EpochOf(reports)
		if largest <= usable {
			v.looked(reports, usable)
			return
		}
		v.survey(preparing(largest, false), func(prepared []quorum.Report) {
			usable, _ := quorum.EpochOf(prepared)
			v.looked(reports, usable)
		})
	})
}

func (v *voter) looked(reports []quorum.Report, usable uint64) {
	v.epoch = max(v.epoch, usable)
	if _, majority := quorum.PlanRejoin(reports); majority {
		for i, r := range reports {
			if n := v.w.redises[i]; r.Believed {
				v.reach(n, func(time.Duration) reply { n.word = false; return reply{} }, nil)
			}
		}
	}
	v.bringBack(reports, 0)
}

// bringBack takes the emptied nodes one by one. Only then may this client look
// again: several that bring a node back at one time stand in each other's way.
func (v *voter) bringBack(reports []quorum.Report, from int) {
	for i := from; i < len(reports); i++ {
		if reports[i].Known && !reports[i].Data {
			v.rejoin(v.w.redises[i], func() { v.bringBack(reports, i+1) })
			return
		}
	}
	v.looking = false
}

// rejoin gives a node its vote back, in the order of production: the
// join nonce first; then the epochs are read; then the majority moves; then the
// node may vote.
func (v *voter) rejoin(n *redisNode, done func()) {
	v.joins++
	nonce := fmt.Sprintf("%s.%d.%d", v.name, v.life, v.joins)
	quarantine := 2 * v.policy.TTL
	v.insist(n, func(now time.Duration) reply { return n.beginJoin(now, nonce) }, func(r reply) {
		if r.word != "ok" {
			done()
			return
		}
		v.survey(status, func(reports []quorum.Report) {
			read, believed := quorum.Believe(reports)
			epoch, ok := quorum.PlanRejoin(read)
			if !ok || r.left < quarantine && !reports[n.number].Doubted {
				done()
				return
			}
			v.survey(preparing(epoch, believed), func(prepared []quorum.Report) {
				floor, ok := quorum.Floor(reports, prepared, epoch)
				if !ok {
					done()
					return
				}
				v.insist(n, func(now time.Duration) reply { return n.init(now, nonce, epoch, floor, quarantine, believed) }, func(reply) { done() })
			})
		})
	})
}

// insist is reach with an end: got is called once, with an empty reply if none
// came in time.
func (v *voter) insist(n *redisNode, do func(now time.Duration) reply, got func(reply)) {
	over := false
	once := func(r reply) {
		if !over {
			over = true
			got(r)
		}
	}
	v.reach(n, do, once)
	v.w.timer(v.party, nodeTimeout, func() { once(reply{}) })
}
