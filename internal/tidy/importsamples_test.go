package tidy

var importSamples = []sample{
	{
		name: "imports run one way",
		files: map[string]string{
			"fencing/a.go":      imports("fencing", "fmt"),
			"fencing/a_test.go": imports("fencing_test", "example.com/leased/fencing", "github.com/stretchr/testify/require"),
			"lease/a.go":        imports("lease", "example.com/leased/fencing", "crypto/rand"),
			"lease/a_test.go":   imports("lease_test", "example.com/leased/lease/leasetest", "pgregory.net/rapid"),
			"lease/leasetest/a.go": imports("leasetest", "example.com/leased/lease/engine", "example.com/leased/lease",
				"github.com/stretchr/testify/require"),
			"internal/remote/a.go":   imports("remote", "example.com/leased/api/leased/v1", "google.golang.org/grpc"),
			"raftstore/machine/a.go": imports("machine", "example.com/leased/lease/engine", "example.com/leased/fencing"),
			"raftstore/a.go": imports("raftstore", "example.com/leased/raftstore/machine",
				"github.com/hashicorp/raft"),
			"redlockadapter/a.go": imports("redlockadapter", "example.com/leased/lease/engine",
				"github.com/redis/go-redis/v9"),
			"redlockadapter/a_test.go": imports("redlockadapter_test", "example.com/leased/internal/testserver"),
			"storagegate/sqlgate/a.go": imports("sqlgate", "example.com/leased/storagegate", "example.com/leased/fencing"),
			"storagegate/sqlgate/a_test.go": imports("sqlgate_test", "example.com/leased/storagegate/gatetest",
				"example.com/leased/internal/testserver", "github.com/jackc/pgx/v5/stdlib"),
			"internal/server/a.go": imports("server", "example.com/leased/raftstore", "example.com/leased/redlockadapter"),
			"client/a.go": imports("client", "example.com/leased/internal/remote",
				"example.com/leased/redlockadapter"),
			"client/a_test.go": imports("client_test", "example.com/leased/internal/server",
				"example.com/leased/raftstore"),
			"cmd/leased/main.go": imports("main", "example.com/leased/internal/server", "github.com/spf13/cobra"),
			"proptest/model/a.go": imports("model", "example.com/leased/internal/server",
				"example.com/leased/lease/leasetest"),
			"examples/guarded/main.go": imports("main", "example.com/leased/lease/leasetest",
				"example.com/leased/storagegate/memgate"),
			"lease/testdata/x/a.go":     imports("x", "example.com/leased/cmd/leased"),
			"bench/go.mod":              "module example.com/leased/bench\n",
			"bench/main.go":             imports("main", "example.com/leased/lease", "go.etcd.io/etcd/client/v3"),
			"internal/testserver/a.go":  imports("testserver", "net"),
			"raftstore/machine/b.go":    imports("machine", "time"),
			"storagegate/gatetest/a.go": imports("gatetest", "example.com/leased/storagegate", "pgregory.net/rapid"),
		},
	},
	{
		name: "fencing and the client API import no third-party module",
		files: map[string]string{
			"fencing/a.go":           imports("fencing", "fmt", "golang.org/x/sys/unix"),
			"fencing/b.go":           imports("fencing", "example.com/leased/lease"),
			"lease/a.go":             imports("lease", "github.com/redis/go-redis/v9"),
			"lease/b.go":             imports("lease", "C"),
			"lease/c.go":             imports("lease", "example.com/leased/lease/leasetest"),
			"raftstore/machine/a.go": imports("machine", "github.com/hashicorp/raft"),
		},
		want: []string{
			"fencing/a.go:5 fencing may not import golang.org/x/sys/unix",
			"fencing/b.go:4 fencing may not import example.com/leased/lease",
			"lease/a.go:4 lease may not import github.com/redis/go-redis/v9",
			"lease/b.go:4 lease may not import C",
			"lease/c.go:4 lease may not import example.com/leased/lease/leasetest",
			"raftstore/machine/a.go:4 raftstore/machine may not import github.com/hashicorp/raft",
		},
	},
	{
		name: "adapters do not import each other, not even in tests",
		files: map[string]string{
			"raftstore/a.go":           imports("raftstore", "example.com/leased/redlockadapter"),
			"raftstore/a_test.go":      imports("raftstore_test", "example.com/leased/redlockadapter"),
			"redlockadapter/a.go":      imports("redlockadapter", "example.com/leased/raftstore"),
			"redlockadapter/a_test.go": imports("redlockadapter_test", "example.com/leased/raftstore/machine"),
			"internal/remote/a.go":     imports("remote", "example.com/leased/raftstore"),
		},
		want: []string{
			"internal/remote/a.go:4 may not import example.com/leased/raftstore",
			"raftstore/a.go:4 may not import example.com/leased/redlockadapter",
			"raftstore/a_test.go:4 may not import example.com/leased/redlockadapter",
			"redlockadapter/a.go:4 may not import example.com/leased/raftstore",
			"redlockadapter/a_test.go:4 may not import example.com/leased/raftstore/machine",
		},
	},
	{
		name: "gates import neither the lock client nor test helpers",
		files: map[string]string{
			"storagegate/a.go":               imports("storagegate", "example.com/leased/lease"),
			"storagegate/redisgate/a.go":     imports("redisgate", "example.com/leased/redlockadapter"),
			"storagegate/redisgate/b.go":     imports("redisgate", "example.com/leased/storagegate/gatetest"),
			"storagegate/sqlgate/a_test.go":  imports("sqlgate_test", "example.com/leased/lease/leasetest"),
			"storagegate/httpgate/a_test.go": imports("httpgate_test", "example.com/leased/raftstore"),
		},
		want: []string{
			"storagegate/a.go:4 may not import example.com/leased/lease",
			"storagegate/httpgate/a_test.go:4 may not import example.com/leased/raftstore",
			"storagegate/redisgate/a.go:4 may not import example.com/leased/redlockadapter",
			"storagegate/redisgate/b.go:4 may not import example.com/leased/storagegate/gatetest",
			"storagegate/sqlgate/a_test.go:4 may not import example.com/leased/lease/leasetest",
		},
	},
	{
		name: "only cmd and proptest import the server, and no package imports cmd",
		files: map[string]string{
			"internal/server/a.go":    imports("server", "example.com/leased/cmd/leased"),
			"proptest/a.go":           imports("proptest", "example.com/leased/cmd/leased"),
			"examples/x/main.go":      imports("main", "example.com/leased/internal/server"),
			"raftstore/a_test.go":     imports("raftstore_test", "example.com/leased/internal/server"),
			"client/a.go":             imports("client", "example.com/leased/internal/server"),
			"bench/main.go":           imports("main", "example.com/leased/internal/server"),
			"cmd/leased/main.go":      imports("main", "example.com/leased/lease/leasetest"),
			"cmd/leased/main_test.go": imports("main", "example.com/leased/lease/leasetest"),
		},
		want: []string{
			"bench/main.go:4 may not import example.com/leased/internal/server",
			"client/a.go:4 may not import example.com/leased/internal/server",
			"cmd/leased/main.go:4 may not import example.com/leased/lease/leasetest",
			"examples/x/main.go:4 may not import example.com/leased/internal/server",
			"internal/server/a.go:4 may not import example.com/leased/cmd/leased",
			"proptest/a.go:4 may not import example.com/leased/cmd/leased",
			"raftstore/a_test.go:4 may not import example.com/leased/internal/server",
		},
	},
	{
		name: "a new folder needs a row",
		files: map[string]string{
			"utils/a.go":          imports("utils", "fmt"),
			"utils/b.go":          imports("utils", "fmt"),
			"lease/extra/a.go":    imports("extra", "fmt"),
			"main.go":             imports("main", "fmt"),
			"raftstore/disk/a.go": imports("disk", "fmt"),
		},
		want: []string{
			`lease/extra/a.go:1 folder "lease/extra" has no row`,
			`main.go:1 folder "." has no row`,
			`utils/a.go:1 folder "utils" has no row`,
		},
	},
}

// imports returns a Go file that only imports; the first path is on line 4.
func imports(pkg string, paths ...string) string {
	text := []string{"package " + pkg, "", "import ("}
	for _, p := range paths {
		text = append(text, `	_ "`+p+`"`)
	}
	return lines(append(text, ")")...)
}
