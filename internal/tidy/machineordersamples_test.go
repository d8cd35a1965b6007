package tidy

// sampleHelpers are valid helpers of the machine.
var sampleHelpers = lines(`package machine`, `import ("cmp"; "maps"; "slices")`,
	`type session struct{ requests map[string]int }`,
	`func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }`,
	`func requestsOf(s *session) []int {`, `	var all []int`, `	for _, r := range s.requests { all = append(all, r) }`,
	`	slices.Sort(all)`, `	return all`, `}`)

var sampleEngine = lines(`package engine`, `import "time"`,
	`type Clock interface{ Now() time.Time }`, `func SystemClock() Clock { return nil }`,
	`func NewNonce() string { return "" }`,
	`type Policies []string`, `func (Policies) For() string { return "" }`, `func NewPolicies() Policies { return nil }`)

var machineOrderSamples = []sample{
	{
		name: "sorted iteration",
		files: map[string]string{
			"lease/engine/a.go":            sampleEngine,
			"raftstore/machine/machine.go": sampleHelpers,
			"raftstore/machine/a.go": lines(`package machine`, `import ("maps"; "example.com/leased/lease/engine")`,
				`func f(m map[string]int, list []string) {`,
				`	for _, k := range sortedKeys(m) { _ = m[k] }`, `	for range list {}`, `	for range 3 {}`,
				`	for range engine.NewPolicies().For() {}`,
				`	clear(maps.Clone(m))`, `}`),
			"raftstore/machine/a_test.go": lines(`package machine`, `func g(m map[int]int) { for range m {} }`),
			"raftstore/a.go":              lines(`package raftstore`, `func g(m map[int]int) { for range m {} }`),
		},
	},
	{
		name: "the order of a map is visible",
		files: map[string]string{
			"raftstore/machine/machine.go": sampleHelpers,
			"raftstore/machine/a.go": lines(`package machine`, `import m "maps"`, `type table map[int]int`,
				`func f(a table, b map[string]bool) {`,
				`	for range a {}`, `	for k := range b { _ = k }`, `	for range m.Keys(a) {}`, `	walk := m.Values[table]`,
				`	_ = walk`,
				`	m.DeleteFunc(b, func(string, bool) bool { return true })`, `	for range m.All(b) {}`, `}`,
				`func g[M ~map[int]int](x M) { for range x {} }`,
				`var h = func(s *session) { for range s.requests {} }`),
			"raftstore/machine/b.go": lines(`package machine`, `// A helper must be in machine.go.`,
				`func sessionIDs(m map[int]int) { for range m {} }`),
		},
		want: []string{
			"raftstore/machine/a.go:5 range over a map",
			"raftstore/machine/a.go:6 range over a map",
			"raftstore/machine/a.go:7 maps.Keys",
			"raftstore/machine/a.go:8 maps.Values",
			"raftstore/machine/a.go:10 maps.DeleteFunc",
			"raftstore/machine/a.go:11 maps.All",
			"raftstore/machine/a.go:13 range over a map",
			"raftstore/machine/a.go:14 range over a map",
			"raftstore/machine/b.go:3 range over a map",
		},
	},
	{
		name: "a helper that does not sort",
		files: map[string]string{
			"raftstore/machine/machine.go": lines(`package machine`, `import ("maps"; "slices")`,
				`func sortedKeys[K comparable, V any](m map[K]V) []K { return slices.Collect(maps.Keys(m)) }`),
		},
		want: []string{"raftstore/machine/machine.go:3 sortedKeys iterates over a map but does not sort"},
	},
	{
		name: "a clock or a random number through lease/engine",
		files: map[string]string{
			"lease/engine/a.go": sampleEngine,
			"raftstore/machine/a.go": lines(`package machine`, `import "example.com/leased/lease/engine"`,
				`var clock = engine.SystemClock()`, `func f() string { return engine.NewNonce() }`),
		},
		want: []string{
			"raftstore/machine/a.go:3 engine.SystemClock is not known",
			"raftstore/machine/a.go:4 engine.NewNonce is not known",
		},
	},
}
