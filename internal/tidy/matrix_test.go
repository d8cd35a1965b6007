package tidy

// place is a row of the import matrix: what a folder may import in addition to the
// standard library.
type place struct {
	folder  string   // "lease", or "cmd/..." for the folder and everything below it
	ours    []string // packages of this repository
	theirs  []string // third-party modules; "*" for any
	inTests []string // packages of this repository that test files may import as well
}

// testLibraries may be imported by any test.
var testLibraries = []string{
	"github.com/stretchr/testify",
	"pgregory.net/rapid",
	"go.uber.org/goleak",
	"github.com/anishathalye/porcupine",
}

var (
	anything = []string{"*"}
	// helpers are packages for tests, benchmarks and examples only.
	helpers = []string{"lease/leasetest", "storagegate/gatetest", "internal/testserver", "internal/servicetest",
		"internal/golden", "internal/logtest", "internal/browser"}
)

// matrix says which folder may import which. Imports run one way:
//
//	cmd -> internal/server -> (redlockadapter | raftstore) -> lease/engine -> fencing
//	client -> (redlockadapter | internal/remote) -> lease/engine
//	lease -> (lease/engine | storagegate)
//	storagegate -> fencing
//	telemetry -> (lease | storagegate)
//
// The row with the longest matching folder applies. A folder without a row is an
// error, so a new package needs a row here.
var matrix = []place{
	// The leaf: a storage server can import it without any dependency.
	{folder: "fencing"},
	{folder: "fencing/signature", ours: []string{"fencing"}},

	// The contract between callers and engines.
	{folder: "lease/engine", ours: []string{"fencing"}, inTests: []string{"lease", "raftstore/memory"}},

	// The client API. It imports no engine; its tests import the memory engine.
	{folder: "lease", ours: []string{"fencing", "lease/engine", "internal/clientcore", "storagegate"},
		inTests: []string{"lease/leasetest", "raftstore/memory", "storagegate/memgate"}},
	{folder: "lease/leasetest", ours: []string{"fencing", "lease", "lease/engine"}, theirs: testLibraries,
		inTests: []string{"raftstore/memory"}},
	{folder: "lease/postgres", ours: []string{"fencing", "lease/engine"}, theirs: anything,
		inTests: []string{"lease", "lease/leasetest", "internal/logtest", "internal/testserver", "storagegate/sqlgate"}},
	{folder: "internal/clientcore", ours: []string{"fencing", "lease/engine"}},
	{folder: "internal/perlease", ours: []string{"fencing", "lease/engine"},
		inTests: []string{"lease/leasetest"}},
	// The client side of the service's API. Client and server share its messages and secrets.
	{folder: "internal/wire", ours: []string{"fencing", "lease/engine", "api/..."}, theirs: anything,
		inTests: []string{"lease", "internal/golden"}},
	{folder: "internal/secret", ours: []string{"internal/wire"}, theirs: anything},
	{folder: "internal/remote", theirs: anything,
		ours: []string{"fencing", "lease/engine", "internal/clientcore", "internal/perlease", "internal/wire",
			"internal/secret", "api/..."},
		inTests: []string{"lease", "lease/leasetest", "raftstore/memory", "internal/testserver"}},

	// The pure core and the two adapters, which never import each other.
	{folder: "raftstore/machine", ours: []string{"fencing", "lease/engine"},
		inTests: []string{"lease/leasetest", "internal/golden"}},
	{folder: "raftstore/lessor", ours: []string{"fencing", "lease/engine", "raftstore/machine"}},
	{folder: "raftstore/proposer", ours: []string{"fencing", "lease/engine", "raftstore/machine"}},
	{folder: "raftstore/hub", ours: []string{"fencing", "lease/engine", "raftstore/machine"}},
	{folder: "raftstore/memory", ours: []string{"fencing", "lease/engine", "raftstore/machine", "raftstore/lessor",
		"raftstore/hub"},
		inTests: []string{"lease/leasetest", "lease"}},
	{folder: "raftstore/logstore", ours: []string{"lease/engine"}, theirs: anything},
	{folder: "raftstore/transport", ours: []string{"lease/engine"}, theirs: anything,
		inTests: []string{"internal/testserver", "internal/golden"}},
	{folder: "raftstore/replica", ours: []string{"fencing", "lease/engine", "raftstore/machine", "raftstore/proposer"},
		theirs:  anything,
		inTests: []string{"internal/golden"}},
	{folder: "raftstore/...", ours: []string{"fencing", "lease/engine", "raftstore/..."}, theirs: anything,
		inTests: []string{"lease", "lease/leasetest", "internal/testserver", "internal/golden", "internal/logtest"}},
	{folder: "redlockadapter/...", ours: []string{"fencing", "lease/engine", "internal/perlease", "redlockadapter/..."},
		theirs:  anything,
		inTests: []string{"lease", "lease/leasetest", "internal/testserver", "internal/golden", "internal/logtest"}},

	// The client of a service, for both modes. Its tests run a service.
	{folder: "client", theirs: anything,
		ours: []string{"fencing", "lease/...", "internal/clientcore", "internal/perlease", "internal/remote",
			"internal/secret", "redlockadapter/..."},
		inTests: append([]string{"internal/server/...", "internal/wire", "raftstore/...", "storagegate/...", "api/..."},
			helpers...)},

	// The gates import no lock client, not even in tests.
	{folder: "storagegate/gatetest", ours: []string{"fencing", "storagegate"}, theirs: testLibraries,
		inTests: []string{"storagegate/memgate"}},
	{folder: "storagegate/...", ours: []string{"fencing/...", "storagegate/..."}, theirs: anything,
		inTests: []string{"storagegate/gatetest", "internal/testserver", "internal/servicetest", "internal/golden"}},

	// Metrics, traces and reports for programs: the only packages that know both leases and
	// gates.
	{folder: "telemetry/...", ours: []string{"fencing", "lease", "lease/engine", "storagegate", "telemetry/..."},
		theirs: anything,
		inTests: append([]string{"client", "lease/...", "storagegate/...", "api/...", "internal/server/...", "raftstore/..."},
			helpers...)},

	// The service and the programs.
	{folder: "api/...", ours: []string{"api/..."}, theirs: anything, inTests: []string{"internal/golden"}},
	{folder: "internal/server/...", theirs: anything,
		ours: []string{"internal/server/...", "internal/wire", "internal/secret", "internal/clientcore", "redlockadapter/...",
			"raftstore/...",
			"lease/...", "fencing/...", "api/..."},
		inTests: append([]string{"client", "internal/remote"}, helpers...)},
	// Only the torture program imports proptest: production code contains no test code.
	{folder: "cmd/...", theirs: anything,
		ours: []string{"cmd/...", "client", "telemetry/...", "internal/server/...", "redlockadapter/...", "raftstore/...",
			"lease/...",
			"storagegate/...", "fencing/...", "api/...", "internal/remote", "internal/wire", "internal/secret", "internal/load",
			"internal/progress"},
		inTests: append([]string{"proptest/..."}, helpers...)},
	{folder: "cmd/leased-torture", ours: []string{"proptest/...", "internal/testserver"}, theirs: anything},

	// Property tests, examples and benchmarks. Of these only proptest imports the server.
	{folder: "proptest/...", theirs: anything,
		ours: append([]string{"proptest/...", "client", "internal/clientcore", "internal/wire", "internal/server/...",
			"redlockadapter/...", "raftstore/...",
			"lease/...", "storagegate/...", "fencing", "api/...", "internal/progress"}, helpers...)},
	{folder: "examples/...", theirs: anything,
		ours: append([]string{"examples/...", "client", "telemetry/...", "redlockadapter/...", "raftstore/...", "lease/...",
			"storagegate/...", "fencing",
			"api/..."}, helpers...)},
	// The checks of the clients in other languages.
	{folder: "sdk/...", theirs: anything,
		ours: append([]string{"client", "lease/...", "storagegate/...", "fencing"}, helpers...)},
	{folder: "bench/...", theirs: anything,
		ours: append([]string{"bench/...", "client", "telemetry/...", "redlockadapter/...", "raftstore/...", "lease/...",
			"storagegate/...", "fencing",
			"api/...", "internal/load", "internal/progress"}, helpers...)},

	// Adapters for programs of others, each in a module of its own.
	{folder: "integrations/...", theirs: anything, ours: []string{"integrations/...", "client", "lease", "storagegate/...",
		"fencing"},
		inTests: append([]string{"lease/..."}, helpers...)},

	// Load on lock services, for the command line and bench.
	{folder: "internal/load", ours: []string{"internal/progress", "lease/engine"}},
	// Progress of long work, for all programs.
	{folder: "internal/progress", theirs: []string{"golang.org/x/term", "github.com/mattn/go-runewidth"}},

	// Checks of files that are no Go code, in a module of their own.
	{folder: "tools/...", theirs: anything},

	// Writes api/leased/v1/openapi.yaml.
	{folder: "internal/openapi", ours: []string{"internal/server/httpapi", "internal/wire"}, theirs: anything,
		inTests: []string{"api/..."}},

	// Helpers for tests of this repository.
	{folder: "internal/abuse", theirs: anything,
		inTests: []string{"internal/testserver", "internal/server/auth", "internal/secret", "internal/wire", "lease/engine",
			"api/..."}},
	{folder: "internal/golden", theirs: testLibraries},
	{folder: "internal/logtest"},
	{folder: "internal/browser", theirs: anything},
	{folder: "internal/screenshots", ours: []string{"internal/browser", "internal/testserver", "lease/engine"},
		theirs: anything},
	{folder: "internal/testserver"},
	{folder: "internal/servicetest", ours: []string{"fencing/...", "storagegate/..."},
		theirs: append([]string{"google.golang.org/protobuf"}, testLibraries...)},
	{folder: "internal/tidy"},
}
