package main

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg/draw"
)

// Names of targets.
const (
	leased      = "leased"            // correctness mode
	efficiency  = "leased-efficiency" // the client talks to the Redis nodes
	member      = "leased-member"     // efficiency mode through a member
	etcd        = "etcd"
	etcdJSON    = "etcd-json"
	zookeeper   = "zookeeper"
	advisory    = "postgres-advisory"
	row         = "postgres-row"
	pgEngine    = "postgres-leased"
	redsyncOne  = "redsync-1"
	redsyncFive = "redsync-5"
	redislock   = "redislock-1"
	bare        = "redis-bare-5"
	redsync     = "redsync" // with as many nodes as leased
	jsonAPI     = "leased-json"
	consul      = "consul"
	gated       = "gated" // writes under a lease, through the gate
	plain       = "plain" // the same without the gate
	pairGated   = "pair-gated"
	pairPlain   = "pair-plain"
)

// look is the name and the style of a target, the same in all tables and plots. A target has its own colour, marker
// and dash, so that no reader depends on colours alone.
type look struct {
	name, label string
	shade       shade
	marker      draw.GlyphDrawer
	dashed      bool
	// against is what a peer is compared with in the tables: efficiency mode for libraries that use Redis, the JSON API
	// for a gateway, the gated write for the plain one, and correctness mode for the others. It is empty for our own.
	against string
}

// shade is a colour on a light and on a dark page.
type shade struct{ light, dark uint32 }

// The colours are those of Okabe and Ito, which readers with any kind of colour vision can tell apart, and neighbours
// of them with more contrast to the page.
var (
	grey      = shade{0x5f6368, 0xb4b8bd}
	blue      = shade{0x0072b2, 0x56b4e9}
	vermilion = shade{0xd55e00, 0xff8b4d}
	green     = shade{0x00815d, 0x35d0a1}
	purple    = shade{0xb0478c, 0xe79ac8}
	orange    = shade{0xb07d00, 0xf0c040}
	indigo    = shade{0x44349b, 0xa99cf5}
	brown     = shade{0x7a4a24, 0xc99a72}
	black     = shade{0x000000, 0xe6edf3}
	white     = shade{0xffffff, 0x0d1117}
	grid      = shade{0xd8dee4, 0x2a313a}
)

// color returns the colour on a light page.
func (s shade) color() color.Color {
	return color.RGBA{R: uint8(s.light >> 16), G: uint8(s.light >> 8), B: uint8(s.light), A: 255}
}

// looks are the known targets in the order of the tables.
var looks = []look{
	{leased, "leased, correctness", blue, draw.CircleGlyph{}, false, ""},
	{efficiency, "leased, efficiency", blue, draw.CircleGlyph{}, true, ""},
	{member, "leased, efficiency via a member", blue, draw.CrossGlyph{}, true, ""},
	{jsonAPI, "leased, JSON API", blue, draw.BoxGlyph{}, true, ""},
	{etcd, "etcd", vermilion, draw.BoxGlyph{}, false, leased},
	{etcdJSON, "etcd, JSON gateway", vermilion, draw.CrossGlyph{}, true, jsonAPI},
	{zookeeper, "ZooKeeper", green, draw.PyramidGlyph{}, false, leased},
	{consul, "Consul", brown, draw.RingGlyph{}, false, leased},
	{advisory, "PostgreSQL advisory lock", indigo, draw.RingGlyph{}, false, leased},
	{row, "PostgreSQL row lease", indigo, draw.CrossGlyph{}, true, leased},
	{pgEngine, "leased, PostgreSQL", blue, draw.PyramidGlyph{}, false, ""},
	{redsyncOne, "redsync, 1 Redis", purple, draw.PyramidGlyph{}, true, efficiency},
	{redsyncFive, "redsync, 5 Redis", purple, draw.PyramidGlyph{}, false, efficiency},
	{redsync, "redsync", purple, draw.PyramidGlyph{}, false, efficiency},
	{bare, "baseline: SET and INCR on 5 Redis", grey, draw.CrossGlyph{}, true, efficiency},
	{gated, "gated write", blue, draw.CircleGlyph{}, false, ""},
	{plain, "plain write", grey, draw.BoxGlyph{}, false, gated},
	{pairGated, "acquire, gated write, release", blue, draw.BoxGlyph{}, false, ""},
	{pairPlain, "acquire, plain write, release", grey, draw.CircleGlyph{}, false, pairGated},
	{redislock, "redislock, 1 Redis", orange, draw.BoxGlyph{}, true, efficiency},
}

// rank returns the position of a target; unknown ones come last.
func rank(target string) int {
	if i := slices.IndexFunc(looks, func(l look) bool { return l.name == target }); i >= 0 {
		return i
	}
	return len(looks)
}

// lookOf returns the look of a target.
func lookOf(target string) look {
	if i := rank(target); i < len(looks) {
		return looks[i]
	}
	return look{name: target, label: target, shade: grey, marker: draw.CircleGlyph{}, against: leased}
}

// label returns the name of a target for readers.
func label(target string) string { return lookOf(target).label }

// isOurs says whether a target is leased, or a write through one of its gates.
func isOurs(target string) bool { return lookOf(target).against == "" }
