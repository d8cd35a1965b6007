package tidy

// place is what one part of the repository may import besides itself and the
// standard library.
type place struct {
	folder  string   // as "lease", or "cmd/..." for all below as well
	ours    []string // our packages
	theirs  []string // modules of others; "*" for any
	inTests []string // our packages that its test files may import in addition
}

// The libraries that any test may use.
var testLibraries = []string{
	"github.com/stretchr/testify",
	"pgregory.net/rapid",
	"go.uber.org/goleak",
	"github.com/anishathalye/porcupine",
}

var (
	anything = []string{"*"}
	// helpers are for tests, and for what exists to test or to show.
	helpers = []string{"lease/leasetest", "storagegate/gatetest", "internal/testserver"}
)

// matrix says who may import whom. Arrows run down only:
//
//	cmd -> internal/server -> (redlockadapter | raftstore) -> lease/engine -> fencing
//	client -> (redlockadapter | lease/remote) -> lease/engine
//	lease -> lease/engine
//	storagegate -> fencing
//
// The entry with the longest folder counts. A folder without an entry is an
// error: whoever adds one says here where it stands.
var matrix = []place{
	// The leaf. A storage server imports it and nothing else comes along.
	{folder: "fencing"},

	// The contract between callers and engines.
	{folder: "lease/engine", ours: []string{"fencing"}},

	// The client API. It knows no engine, its tests know the memory one.
	{folder: "lease", ours: []string{"fencing", "lease/engine"},
		inTests: []string{"lease/leasetest", "lease/memory", "raftstore/machine"}},
	{folder: "lease/leasetest", ours: []string{"fencing", "lease", "lease/engine"}, theirs: testLibraries},
	{folder: "lease/memory", ours: []string{"fencing", "lease/engine", "raftstore/machine"},
		inTests: []string{"lease/leasetest", "lease"}},
	{folder: "lease/perlease", ours: []string{"fencing", "lease/engine"},
		inTests: []string{"lease", "lease/leasetest", "lease/memory"}},
	{folder: "lease/remote/...", ours: []string{"fencing", "lease/engine", "lease/perlease", "api/...", "lease/remote/..."}, theirs: anything,
		inTests: []string{"lease", "lease/leasetest", "lease/memory", "internal/testserver"}},

	// The pure core and the two adapters, which never know each other.
	{folder: "raftstore/machine", ours: []string{"fencing", "lease/engine"},
		inTests: []string{"lease/leasetest"}},
	{folder: "raftstore/...", ours: []string{"fencing", "lease/engine", "raftstore/..."}, theirs: anything,
		inTests: []string{"lease", "lease/leasetest", "internal/testserver"}},
	{folder: "redlockadapter/...", ours: []string{"fencing", "lease/engine", "redlockadapter/..."}, theirs: anything,
		inTests: []string{"lease", "lease/leasetest", "internal/testserver"}},

	// What a program that dials a service uses. Its tests run a service.
	{folder: "client", ours: []string{"fencing", "lease/...", "redlockadapter/...", "api/..."}, theirs: anything,
		inTests: append([]string{"internal/server/...", "raftstore/...", "storagegate/..."}, helpers...)},

	// The gates: no lock client, not even in tests.
	{folder: "storagegate/gatetest", ours: []string{"fencing", "storagegate"}, theirs: testLibraries},
	{folder: "storagegate/...", ours: []string{"fencing", "storagegate/..."}, theirs: anything,
		inTests: []string{"storagegate/gatetest", "internal/testserver"}},

	// What runs.
	{folder: "api/...", ours: []string{"api/..."}, theirs: anything},
	{folder: "internal/server/...", theirs: anything,
		ours:    []string{"internal/server/...", "redlockadapter/...", "raftstore/...", "lease/...", "fencing", "api/..."},
		inTests: append([]string{"client"}, helpers...)},
	{folder: "cmd/...", theirs: anything,
		ours: []string{"cmd/...", "client", "internal/server/...", "redlockadapter/...", "raftstore/...", "lease/...", "storagegate/...",
			"fencing", "api/...", "proptest/promise", "proptest/linear", "proptest/spacetime", "proptest/torture"},
		inTests: helpers},

	// What proves, shows and measures. Only proptest looks into the server.
	{folder: "proptest/...", theirs: anything,
		ours: append([]string{"proptest/...", "client", "internal/server/...", "redlockadapter/...", "raftstore/...", "lease/...",
			"storagegate/...", "fencing", "api/..."}, helpers...)},
	{folder: "examples/...", theirs: anything,
		ours: append([]string{"examples/...", "client", "redlockadapter/...", "raftstore/...", "lease/...", "storagegate/...", "fencing",
			"api/..."}, helpers...)},
	{folder: "bench/...", theirs: anything,
		ours: append([]string{"bench/...", "client", "redlockadapter/...", "raftstore/...", "lease/...", "storagegate/...", "fencing",
			"api/..."}, helpers...)},

	// Helpers of this repository.
	{folder: "internal/testserver"},
	{folder: "internal/tidy"},
}
