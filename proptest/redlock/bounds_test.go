package redlock

// searched are the exhaustive searches of make prop.
var searched = []Bounds{
	{Name: "2 attempts that renew, repeated acquires, timeouts, idle records",
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Fail: true, Renew: true, Idle: true, Copies: true},
	{Name: "to correctness and back, 1 attempt that renews, an abort, late keeper messages",
		Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2, Late: true, Others: true, Renew: true},
	{Name: "to efficiency and back, 1 attempt, an abort",
		Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2, Late: true, Others: true},
	{Name: "to correctness, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "to efficiency, 2 attempts", Nodes: 3, Attempts: 2, Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1, Others: true},
	{Name: "to correctness, 1 attempt, 1 loss", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Losses: 1, Ranges: 1, Late: true, Others: true},
	{Name: "to efficiency, 1 attempt, 1 loss", Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1, Losses: 1, Ranges: 1, Late: true, Others: true},
	{Name: "overlapping fleets, 1 attempt", Nodes: 4, Attempts: 1, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b0111, 0b1110}, Changes: 1, Ranges: 3, Raise: true},
	{Name: "fleets of one node, 2 attempts, there and back, 1 loss",
		Nodes: 2, Attempts: 2, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b01, 0b10}, Changes: 2, Ranges: 3, Losses: 1, Raise: true},
	{Name: "standalone, one node, 2 attempts, 3 losses that keep data", Nodes: 1, Attempts: 2, Standalone: true, Losses: 3, Former: true},
	{Name: "standalone, 2 attempts, a loss during the first", Nodes: 3, Attempts: 2, Standalone: true, Losses: 1, Fail: true, Prefix: halfway},
	{Name: "standalone, 2 attempts, a second loss of one node during the first", Nodes: 3, Attempts: 2, Standalone: true, Losses: 1, Fail: true, Prefix: halfway,
		Start: func(w *State) {
			for n := range w.Nodes[:3] {
				w.Nodes[n].Servers[0].Max, w.Nodes[n].Servers[0].Floor = jump, jump
			}
		}},
	{Name: "the log is restored, 1 attempt", Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "the log is restored, 1 attempt, starts in efficiency", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "1 address moves, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 1, Time: true, Fail: true},
	{Name: "1 address moves back and forth, 1 attempt", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Replaced: 1, Back: 1, Ranges: 2, Others: true},
	{Name: "2 addresses move, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 2, Ranges: 2, Time: true},
	{Name: "a backup from before a change of the fleet is restored", Nodes: 2, Attempts: 2, Mode: efficiency, Ceiling: 1, Fleets: []uint8{0b01, 0b10}, Changes: 1, Ranges: 2, Raise: true, Restores: 1},
	{Name: "an address moves, a node restarts and the log is restored, 2 attempts", Prefix: forgotten[:9], Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Losses: 1, Former: true, Restores: 1, Ranges: 2},
	{Name: "a voter is joined again and another address moves", Prefix: joinedAgain, Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 2, Late: true, Others: true, Fail: true},
	{Name: "standalone, 1 address moves, 2 attempts", Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1},
	{Name: "standalone, 1 address leads back twice, 2 attempts", Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1, Back: 2},
	{Name: "1 loss, 2 attempts that renew, timeouts",
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 1, Ranges: 1, Fail: true, Renew: true},
	{Name: "a lease is kept while 2 nodes restart, another attempt",
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 2, Ranges: 2, Fail: true, Leases: true, Maintenance: true, Prefix: leased},
	{Name: "a lease is kept while an address moves and a node restarts, another attempt",
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 1, Replaced: 1, Ranges: 2, Fail: true, Leases: true, Maintenance: true, Prefix: leased},
	{Name: "a lease is broken, an older one is released late, 1 loss",
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 4, Losses: 1, Ranges: 1, Breaks: 1, Leases: true, Renew: true, Prefix: leased},
}

// soaked are the searches that take minutes each.
var soaked = []Bounds{
	{Name: "3 attempts", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 8},
	{Name: "2 losses, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 2, Ranges: 2},
	{Name: "to correctness and back, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2, Late: true, Others: true},
	{Name: "to efficiency and back, 2 attempts", Nodes: 3, Attempts: 2, Mode: correctness, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2},
	{Name: "migrations and losses, 1 attempt", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 2, Grants: 2, Losses: 2, Ranges: 2},
	{Name: "migrations and losses, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Losses: 1, Ranges: 1},
	{Name: "overlapping fleets, 2 attempts", Nodes: 4, Attempts: 2, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b0111, 0b1110}, Changes: 1, Ranges: 3},
	{Name: "standalone, 1 loss, 2 attempts", Nodes: 3, Attempts: 2, Standalone: true, Losses: 1, Former: true},
	{Name: "standalone, 2 losses, 2 attempts", Nodes: 3, Attempts: 2, Standalone: true, Losses: 2},
	{Name: "2 addresses move, 2 attempts, timeouts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 2, Ranges: 2, Fail: true},
	{Name: "an address moves back and forth, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Back: 1, Ranges: 2, Fail: true},
	{Name: "standalone, 2 addresses move, 2 attempts", Nodes: 3, Attempts: 2, Standalone: true, Replaced: 2, Fail: true},
	{Name: "an address moves, a node restarts and the log is restored", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Losses: 1, Former: true, Restores: 1, Ranges: 2},
	{Name: "the log is restored, 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "the log is restored, 1 loss", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1, Losses: 1, Ranges: 1, Former: true},
	{Name: "the log is restored twice", Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1, Restores: 2},
}

// walked are the bounds of the random walks.
var walked = []Bounds{
	{Name: "3 attempts, 3 losses", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Losses: 3, Ranges: 3, Fail: true, Renew: true, Idle: true},
	{Name: "5 nodes, 3 attempts, 3 losses", Nodes: 5, Attempts: 3, Mode: efficiency, Ceiling: 4, Losses: 3, Ranges: 3, Fail: true, Renew: true},
	{Name: "migrations and losses", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Losses: 2, Ranges: 3, Moves: 3, Aborts: 1, Grants: 3, Late: true, Others: true, Renew: true},
	{Name: "5 nodes, migrations and losses", Nodes: 5, Attempts: 3, Mode: correctness, Ceiling: 4, Losses: 3, Ranges: 3, Moves: 3, Aborts: 1, Grants: 3, Fail: true},
	{Name: "fleets of 3 of 5 nodes", Nodes: 5, Attempts: 3, Mode: efficiency, Ceiling: 4, Fleets: []uint8{0b00111, 0b11100, 0b01110}, Changes: 3, Ranges: 9, Raise: true, Losses: 1, Moves: 1, Grants: 2, Renew: true},
	{Name: "standalone", Nodes: 3, Attempts: 3, Standalone: true, Losses: 3, Former: true, Fail: true},
	{Name: "standalone, 5 nodes", Nodes: 5, Attempts: 3, Standalone: true, Losses: 4, Former: true, Fail: true},
	{Name: "3 addresses move", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Replaced: 3, Back: 1, Ranges: 4, Losses: 1, Former: true, Fail: true, Renew: true, Late: true},
	{Name: "3 addresses move, time closes sets", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Replaced: 3, Ranges: 4, Losses: 1, Former: true, Fail: true, Renew: true, Late: true, Time: true},
	{Name: "5 nodes, 4 addresses move", Nodes: 5, Attempts: 3, Mode: efficiency, Ceiling: 4, Replaced: 4, Back: 1, Ranges: 5, Losses: 1, Former: true, Fail: true, Renew: true, Late: true},
	{Name: "addresses move, migrations and a restore", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Replaced: 2, Ranges: 3, Losses: 1, Former: true, Moves: 2, Grants: 3, Restores: 1, Late: true, Others: true, Renew: true},
	{Name: "standalone, 3 addresses move", Nodes: 3, Attempts: 3, Standalone: true, Replaced: 3, Losses: 1, Former: true, Fail: true},
	{Name: "standalone, 2 addresses move and lead back", Nodes: 3, Attempts: 3, Standalone: true, Replaced: 2, Back: 4, Losses: 1, Former: true, Fail: true},
	{Name: "maintenance", Nodes: 5, Attempts: 3, Mode: efficiency, Ceiling: 4, Losses: 5, Ranges: 5, Fail: true, Leases: true, Maintenance: true, Renew: true,
		Prefix: leased5},
	{Name: "breaks and losses", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 4, Losses: 2, Ranges: 2, Breaks: 2, Fail: true, Leases: true, Renew: true},
	{Name: "the log is restored", Nodes: 3, Attempts: 3, Mode: correctness, Ceiling: 4, Moves: 2, Grants: 3, Restores: 1, Losses: 1, Ranges: 2, Former: true, Late: true, Others: true},
}
