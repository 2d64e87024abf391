package metrics_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/matryer/is"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

const (
	alerts    = "../../deploy/prometheus/alerts.yaml"
	dashboard = "../../deploy/grafana/postlane.json"
)

// expressions are those of the alert rules and of the dashboard, by what they are for.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	is := is.New(t)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text, err := os.ReadFile(alerts)
	is.NoErr(err)
	is.NoErr(yaml.Unmarshal(text, &rules))
	runbook, err := os.ReadFile("../../docs/operations.md")
	is.NoErr(err)
	all := map[string]string{}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			is.True(r.Alert != "" && all[r.Alert] == "")
			is.True(r.Annotations["summary"] != "" && r.Annotations["description"] != "")
			is.True(slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]))
			is.True(bytes.Contains(runbook, []byte("\n## "+r.Alert+"\n"))) // what to do about it is told
			all[r.Alert] = r.Expr
		}
	}
	is.True(len(all) >= 10)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	text, err = os.ReadFile(dashboard)
	is.NoErr(err)
	is.NoErr(json.Unmarshal(text, &board))
	is.True(len(board.Panels) >= 15)
	for _, p := range board.Panels {
		is.True(len(p.Targets) > 0)
		for _, target := range p.Targets {
			name := p.Title + " " + target.RefID
			all[name] = strings.NewReplacer("$__rate_interval", "5m", "$job", "postlane").Replace(target.Expr)
		}
	}
	return all
}

// Every expression in deploy/ is one, and asks for metrics and labels that there are.
func TestDeployAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := newMetrics(t)
	is.NoErr(m.WatchRelay(relay{}))
	happened(t, m)
	have := read(t, m)
	for name, text := range expressions(t) {
		parsed, err := metricsql.Parse(text)
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, text)
			continue
		}
		asked := 0
		metricsql.VisitAll(parsed, func(e metricsql.Expr) {
			series, ok := e.(*metricsql.MetricExpr)
			if !ok {
				return
			}
			asked++
			for _, filters := range series.LabelFilterss {
				for _, problem := range missing(have, filters) {
					t.Errorf("%s: %s: %s", name, problem, text)
				}
			}
		})
		is.True(asked > 0)
	}
}

// missing says what of a selector there is not.
func missing(have map[string]*dto.MetricFamily, filters []metricsql.LabelFilter) (problems []string) {
	var family *dto.MetricFamily
	for _, f := range filters {
		switch f.Label {
		case "__name__":
			if f.Value == "up" { // Prometheus's own
				return nil
			}
			if family = have[f.Value]; family == nil {
				base, _, _ := strings.Cut(f.Value, "_bucket")
				family = have[base]
			}
			if family == nil {
				return []string{"there is no metric " + f.Value}
			}
		case "job", "instance": // Prometheus's own
		default:
			found := false
			for _, m := range family.GetMetric() {
				found = found || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == f.Label })
			}
			if !found {
				problems = append(problems, family.GetName()+" has no label "+f.Label)
			}
		}
	}
	return problems
}
