package server_test

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// An idle session with a connection of its own costs the leader little memory. The figure is that of
// live objects and stacks: the process has up to twice as much.
func TestMemoryOfIdleSession(t *testing.T) {
	t.Parallel()
	const sessions, most = 400, 64 << 10 // 42 KiB in a quiet process, and 56 KiB with the race detector
	m := startLeader(t, memberSpec{Collects: true})
	before := m.live()
	m.openIdle(sessions)
	each := math.Inf(1)
	for range 20 { // until garbage of the setup is collected, and buffers have left their pools
		<-time.After(200 * time.Millisecond)
		each = min(each, (m.live()-before)/sessions)
	}
	t.Logf("%.1f KiB for each session", each/1024)
	require.LessOrEqual(t, each, float64(most), "bytes")
}

// BenchmarkIdleSessions reports the processor time, the goroutines and the file descriptors of a leader for each idle
// session that has a connection of its own. The sessions are not renewed, so the processor time is that of heartbeats.
//
//	go test -run '^$' -bench IdleSessions -benchtime 10x ./internal/server
func BenchmarkIdleSessions(b *testing.B) {
	for _, sessions := range []int{1000, 4000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			m := startLeader(b, memberSpec{})
			before := []float64{m.metric("go_goroutines"), m.metric("process_open_fds"),
				m.metric("process_resident_memory_bytes")}
			m.openIdle(sessions)
			cpu, began := m.metric("process_cpu_seconds_total"), time.Now()
			b.ResetTimer()
			for range b.N {
				<-time.After(time.Second)
			}
			b.StopTimer()
			n := float64(sessions)
			used := m.metric("process_cpu_seconds_total") - cpu
			b.ReportMetric(used*1e6/time.Since(began).Seconds()/n, "cpu-us/s/session")
			b.ReportMetric((m.metric("go_goroutines")-before[0])/n, "goroutines/session")
			b.ReportMetric((m.metric("process_open_fds")-before[1])/n, "fds/session")
			b.ReportMetric((m.metric("process_resident_memory_bytes")-before[2])/1024/n, "resident-KiB/session")
			b.ReportMetric(0, "ns/op") // of the waits
		})
	}
}

// startLeader starts a cluster of one.
func startLeader(t testing.TB, spec memberSpec) *member {
	t.Helper()
	spec.ID, spec.Dir, spec.Raft, spec.API = "n1", t.TempDir(), testserver.FreeAddr(t), testserver.FreeAddr(t)
	spec.Heartbeat = steadyHeartbeat
	m := &member{t: t, spec: spec}
	m.start()
	t.Cleanup(m.kill)
	eventually(t, "the member leads", func() bool { return m.status()["serves"] == true })
	return m
}

// openIdle opens sessions that hold a lock each, on connections of their own.
func (m *member) openIdle(sessions int) {
	m.t.Helper()
	for range sessions {
		stream := openStream(m.t, m.spec.API, engine.NewSessionID())
		require.Empty(m.t, stream.open())
		require.Empty(m.t, stream.acquire(1, "idle/"+stream.id.String()))
	}
}

// live returns the bytes of objects and stacks of the process.
func (m *member) live() float64 {
	m.t.Helper()
	return m.metric("go_memstats_heap_alloc_bytes") + m.metric("go_memstats_stack_inuse_bytes")
}

// metric returns a metric without labels.
func (m *member) metric(name string) float64 {
	m.t.Helper()
	response, err := http.Get("http://" + m.spec.API + "/metrics")
	require.NoError(m.t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			require.NoError(m.t, err)
			return value
		}
	}
	require.FailNow(m.t, "no metric "+name)
	return 0
}
