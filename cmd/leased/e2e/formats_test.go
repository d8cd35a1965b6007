//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// readsVersion2 is the advice for data of a newer build.
const readsVersion2 = "this build reads versions up to 1; upgrade to a build that reads version 2"

// Data of a newer build is refused with the format, both versions and what to do.
func TestNewerFormatsAreNamed(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "1m")
	p, api := single(t, flags...)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	take(t, api, "report/1")

	server := redis.NewClient(&redis.Options{Addr: nodes[0].Addr})
	defer server.Close()
	keys, err := server.Keys(t.Context(), "*:node").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NoError(t, server.HSet(t.Context(), keys[0], "format", "2").Err())
	eventually(t, func() bool {
		out, _ := call(t, env, leased, "redis", "status")
		return strings.Contains(out,
			nodes[0].Addr+" does not vote: the state of the Redis node has format version 2, and "+readsVersion2)
	}, "for the status of the node")
	take(t, api, "report/1") // two nodes are a quorum

	saved := filepath.Join(t.TempDir(), "saved")
	must(t, env, leased, "snapshot", "save", saved)
	text, err := os.ReadFile(saved)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(saved, bytes.Replace(text, []byte("leased snapshot 1\n"),
		[]byte("leased snapshot 2\n"), 1), 0o600))
	require.Contains(t, exits(t, 1, env, leased, "snapshot", "inspect", saved),
		"the file of a saved snapshot has format version 2, and "+readsVersion2)

	require.Contains(t, p.output.String(), leads)
	data := filepath.Join(t.TempDir(), "newer")
	require.NoError(t, os.MkdirAll(data, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "member.json"), []byte(`{"format":2,"id":"one"}`), 0o600))
	out, code := call(t, nil, leased, "serve", "--id=one", "--data="+data, "--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "the data folder has format version 2, and "+readsVersion2)
}

// The version of a build has its formats, and a member reports the same.
func TestVersionNamesFormats(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	var own struct {
		Version, GoVersion, Platform string
		Formats                      map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(must(t, nil, leased, "version", "--output=json")), &own))
	require.NotEmpty(t, own.Version)
	require.Equal(t, 1, own.Formats["log-entry"])
	require.Regexp(t, `formats +api 1, append-entries 2, audit 1, commands 1`, must(t, nil, leased, "version"))
	status := must(t, endpoint(api), leased, "cluster", "status", "--output=json")
	var member struct {
		Version string
		Build   struct{ Formats map[string]int }
	}
	require.NoError(t, json.Unmarshal([]byte(status), &member), status)
	require.Equal(t, own.Version, member.Version)
	require.Equal(t, own.Formats, member.Build.Formats)
}
