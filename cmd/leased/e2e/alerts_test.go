//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"go.yaml.in/yaml/v3"
)

// alertsPage is the document that describes the alerts.
const alertsPage = "docs/ALERTS.md"

// alertRule is a rule of deploy/prometheus/alerts.yaml.
type alertRule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type ruleGroup struct {
	Name  string      `yaml:"name"`
	Rules []alertRule `yaml:"rules"`
}

// ruleFile is a file with rules for Prometheus.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

func readRules(t *testing.T) ruleFile {
	t.Helper()
	var file ruleFile
	require.NoError(t, yaml.Unmarshal([]byte(readDeployed(t, "prometheus/alerts.yaml")), &file))
	return file
}

func (f ruleFile) alerts() (rules []alertRule) {
	for _, group := range f.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// write writes a rule file and checks it with promtool.
func (f ruleFile) write(t *testing.T, path string) {
	t.Helper()
	text, err := yaml.Marshal(f)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	must(t, nil, "promtool", "check", "rules", path)
}

// metricLabels returns the metrics in docs/METRICS.md, which a test of internal/server/metrics
// compares with the registry, and the labels of each.
func metricLabels(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/METRICS.md"))
	require.NoError(t, err)
	known := map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| `(leased_\\w+)` \\| (\\w+) \\| ([\\w, ]*) ?\\|")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		known[row[1]] = strings.TrimSpace(row[3])
		if row[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[row[1]+suffix] = row[3]
			}
		}
	}
	require.Greater(t, len(known), 40)
	return known
}

// requireKnownMetrics checks that an expression uses documented metrics only.
func requireKnownMetrics(t *testing.T, known map[string]string, expression string) {
	t.Helper()
	for _, name := range regexp.MustCompile(`\bleased_\w+`).FindAllString(expression, -1) {
		require.Contains(t, known, name, expression)
	}
}

// Each alert has a severity, a summary, a unit test in which it fires and one in which
// it does not, and a section in docs/ALERTS.md, and uses documented metrics.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	must(t, nil, "promtool", "check", "rules", filepath.Join(deploy, "prometheus/alerts.yaml"))
	must(t, nil, "promtool", "test", "rules", filepath.Join(deploy, "prometheus/alerts_test.yaml"))
	var tests struct {
		Tests []struct {
			Cases []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(readDeployed(t, "prometheus/alerts_test.yaml")), &tests))
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			fires[c.Name] = fires[c.Name] || len(c.Alerts) > 0
			quiet[c.Name] = quiet[c.Name] || len(c.Alerts) == 0
		}
	}
	page, err := os.ReadFile(filepath.Join(root, alertsPage))
	require.NoError(t, err)
	known := metricLabels(t)
	var names []string
	for _, rule := range readRules(t).alerts() {
		names = append(names, rule.Alert)
		require.Contains(t, []string{"critical", "warning", "info"}, rule.Labels["severity"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/"+alertsPage+"#"+strings.ToLower(rule.Alert)),
			rule.Alert)
		require.True(t, fires[rule.Alert] && quiet[rule.Alert], "%s needs a unit test in which it fires, and one in which "+
			"it does not", rule.Alert)
		require.Regexp(t, `(?s)\n## `+rule.Alert+`\n\n\w.{100}`, string(page), "the page has no paragraph about the alert")
		requireKnownMetrics(t, known, rule.Expr)
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (Leased\w+)$`).FindAllStringSubmatch(string(page), -1) {
		require.Contains(t, names, heading[1], "the page describes an alert that does not exist")
	}
}

// dashboardFile is what the test reads of a Grafana dashboard.
type dashboardFile struct {
	Title      string
	Templating struct{ List []struct{ Name, Type string } }
	Panels     []grafanaPanel
}

type grafanaPanel struct {
	ID          int
	Type, Title string
	Datasource  struct{ UID string }
	Targets     []struct{ Expr, RefID string }
	GridPos     struct{ X, Y, W, H int }
}

// The Grafana dashboard has unique panels with expressions that Prometheus accepts, on
// documented metrics, and its data source is a variable.
func TestGrafanaDashboard(t *testing.T) {
	t.Parallel()
	var board dashboardFile
	require.NoError(t, json.Unmarshal([]byte(readDeployed(t, "grafana/leased.json")), &board))
	require.Equal(t, "datasource", board.Templating.List[0].Name)
	known := metricLabels(t)
	var ids []int
	var rows []string
	rules := ruleFile{Groups: []ruleGroup{{Name: "dashboard"}}}
	for _, panel := range board.Panels {
		require.NotContains(t, ids, panel.ID, panel.Title)
		ids = append(ids, panel.ID)
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type == "row" {
			rows = append(rows, panel.Title)
			continue
		}
		require.Equal(t, "${datasource}", panel.Datasource.UID, panel.Title)
		require.NotEmpty(t, panel.Targets, panel.Title)
		var refs []string
		for _, target := range panel.Targets {
			require.NotContains(t, refs, target.RefID, panel.Title)
			refs = append(refs, target.RefID)
			requireKnownMetrics(t, known, target.Expr)
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "leased").Replace(target.Expr)
			require.NotContains(t, expr, "$", panel.Title)
			rules.Groups[0].Rules = append(rules.Groups[0].Rules,
				alertRule{Record: fmt.Sprintf("panel:%d:%s", panel.ID, target.RefID), Expr: expr})
		}
	}
	require.Equal(t, []string{"Overview", "Grants and waits", "Holders and losses", "Raft", "Redis", "Gates", "Process"},
		rows)
	rules.write(t, filepath.Join(t.TempDir(), "dashboard.yaml"))
}

// prometheus is a running Prometheus.
type prometheus struct {
	t    *testing.T
	addr string
}

// startPrometheus runs Prometheus with the files in deploy/prometheus. It replaces the
// addresses of the members, and shortens the intervals and the durations in `for:`, so
// that an alert fires as soon as its expression holds for a moment.
func startPrometheus(t *testing.T, members []string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules := readRules(t)
	for _, group := range rules.Groups {
		for i := range group.Rules {
			if group.Rules[i].For != "" {
				group.Rules[i].For = "1s"
			}
		}
	}
	rules.write(t, filepath.Join(dir, "alerts.yaml"))
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(readDeployed(t, "prometheus/prometheus.yaml")), &config))
	config["global"] = map[string]any{"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
	job := config["scrape_configs"].([]any)[0].(map[string]any)
	require.Equal(t, "leased", job["job_name"])
	job["static_configs"] = []any{map[string]any{"targets": members}}
	text, err := yaml.Marshal(config)
	require.NoError(t, err)
	path := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	must(t, nil, "promtool", "check", "config", path)
	p := &prometheus{t: t, addr: testserver.FreeAddr(t)}
	start(t, nil, "prometheus", "--config.file="+path, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr)
	eventually(t, func() bool { return curl(t, "http://"+p.addr+"/-/ready", "") == nil }, "for Prometheus")
	return p
}

// firing returns the instances for which an alert fires; an alert without an instance
// has the instance "".
func (p *prometheus) firing(name string) (instances []string) {
	p.t.Helper()
	var body string
	require.NoError(p.t, curl(p.t, "http://"+p.addr+"/api/v1/alerts", "", &body))
	var got struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	require.NoError(p.t, json.Unmarshal([]byte(body), &got), body)
	for _, alert := range got.Data.Alerts {
		if alert.State == "firing" && alert.Labels["alertname"] == name {
			instances = append(instances, alert.Labels["instance"])
		}
	}
	return instances
}

// up returns how many members Prometheus has scraped.
func (p *prometheus) up() string {
	p.t.Helper()
	var body string
	require.NoError(p.t, curl(p.t, "http://"+p.addr+"/api/v1/query?query=sum(up)", "", &body))
	value := regexp.MustCompile(`"value":\[[^,]*,"(\d+)"\]`).FindStringSubmatch(body)
	if value == nil {
		return ""
	}
	return value[1]
}

// A real Prometheus with the alert rules watches a real cluster. A member is killed, and
// LeasedMemberDown fires for it alone, while the others elect a leader. A second one is
// killed, and LeasedNoLeader fires.
func TestAlarms(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	p := startPrometheus(t, c.apis)
	eventually(t, func() bool {
		return p.up() == "3" && len(p.firing("LeasedMemberDown"))+len(p.firing("LeasedNoLeader")) == 0
	}, "for Prometheus to scrape three members without an alert")

	var scraped string
	require.NoError(t, curl(t, "http://"+c.apis[0]+"/metrics", "", &scraped))
	for name, labels := range metricLabels(t) {
		derived := strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count")
		if labels == "" && !derived && !strings.Contains(scraped, "# TYPE "+name+" ") {
			t.Errorf("the member does not export the documented metric %s", name)
		}
	}

	first := c.leader()
	c.servers[first].signal(syscall.SIGKILL)
	eventually(t, func() bool {
		return slices.Equal(p.firing("LeasedMemberDown"), []string{c.apis[first]}) && len(p.firing("LeasedNoLeader")) == 0
	}, "for LeasedMemberDown; it fires for %v", lazy(func() string { return fmt.Sprint(p.firing("LeasedMemberDown")) }))

	second := (first + 1) % 3
	c.servers[second].signal(syscall.SIGKILL)
	eventually(t, func() bool { return len(p.firing("LeasedNoLeader")) == 1 && len(p.firing("LeasedMemberDown")) == 2 },
		"for LeasedNoLeader")
}
