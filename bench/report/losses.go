package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/leased-project/leased/bench/results"
)

// loss is a figure in which a peer is ahead.
type loss struct {
	work, ours, peer, what string
	at                     params
	ratio                  results.Spread
	behind                 float64 // factor by which leased is worse, above 1
}

// losses returns the comparisons in which the median is worse than that of a peer, the largest difference first. For
// each size and peer it has one figure, the rate if a peer is ahead in that.
func (s *summary) losses() (found []loss) {
	for _, name := range workNames() {
		w := workloads[name]
		if w.gates { // a gated write cannot be faster than the same write without the gate
			continue
		}
		for _, at := range s.cases(name, w.by) {
			var here []loss
			for _, what := range w.compared {
				for _, l := range s.lossesIn(name, what, at) {
					if !slices.ContainsFunc(here, func(o loss) bool { return o.ours == l.ours && o.peer == l.peer }) {
						here = append(here, l)
					}
				}
			}
			found = append(found, here...)
		}
	}
	slices.SortStableFunc(found, func(a, b loss) int { return cmp.Compare(b.behind, a.behind) })
	return found
}

// lossesIn compares correctness mode with all peers, and efficiency mode with those that use Redis.
func (s *summary) lossesIn(work, what string, at params) (found []loss) {
	targets := s.targets(work)
	for _, peer := range targets {
		if isOurs(peer) || peer == bare { // the baseline is no lock: it shows what the servers cost
			continue
		}
		for _, ours := range targets {
			if !isOurs(ours) || ours != leased && ours != lookOf(peer).against {
				continue
			}
			r := ratio(s.values(work, ours, what, at), s.values(work, peer, what, at))
			behind := r.Median
			if figures[what].more && behind > 0 {
				behind = 1 / behind
			}
			if r.Count > 0 && behind > 1 {
				found = append(found, loss{work, ours, peer, what, at, r, behind})
			}
		}
	}
	return found
}

// lossTable lists the losses.
func (s *summary) lossTable() string {
	all := s.losses()
	if len(all) == 0 {
		return "In these results no peer is ahead of leased in a figure that both have.\n"
	}
	var rows [][]string
	for _, l := range all {
		w := workloads[l.work]
		title, _, _ := strings.Cut(w.title, ":")
		name := l.work + ", " + strings.ToLower(title[:1]) + title[1:]
		rows = append(rows, []string{name, l.at.text(w.by), w.label(l.what),
			label(l.ours), label(l.peer), l.ratio.Format(times)})
	}
	return markdown("workload | size | figure | leased | peer | ratio of leased to the peer", rows)
}
