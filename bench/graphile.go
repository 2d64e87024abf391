package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// graphileDir is where graphile-worker is installed, and its worker.mjs is.
const graphileDir = "graphile"

// graphilePeer is graphile-worker, a library of Node: worker.mjs in a process of its own
// works and sends, and reports how many it has. Profiles: "default" as it comes;
// "performance" has the settings of its performance page.
type graphilePeer struct{ m *measurement }

func newGraphile(m *measurement) (peer, error) { return &graphilePeer{m}, nil }

// hasGraphile says whether it is installed.
func hasGraphile() bool {
	_, err := os.Stat(filepath.Join(graphileDir, "node_modules"))
	return err == nil
}

func (p *graphilePeer) version() string {
	text, err := os.ReadFile(filepath.Join(graphileDir, "node_modules/graphile-worker/package.json"))
	if err != nil {
		return "unknown"
	}
	var about struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(text, &about) // "" then
	return about.Version
}

func (p *graphilePeer) conns() int { return 4 }

func (p *graphilePeer) command(ctx context.Context, pool *pgxpool.Pool, task string) *exec.Cmd {
	command := exec.CommandContext(ctx, "node", "worker.mjs", task)
	command.Dir = graphileDir
	command.Env = append(os.Environ(),
		"DATABASE_URL="+pool.Config().ConnString(), "DATABASE="+pool.Config().ConnConfig.Database, "ENDPOINT="+p.m.endpoint,
		"SIGNING_KEY="+signingKey, "CONCURRENCY="+strconv.Itoa(p.m.Concurrency), "PROFILE="+p.m.Profile)
	command.Stderr = os.Stderr
	return command
}

func (p *graphilePeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	return p.command(ctx, pool, "migrate").Run()
}

func (p *graphilePeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	_, err := tx.Exec(ctx, "SELECT graphile_worker.add_job('bench', $1::json)", string(body))
	return err
}

func (p *graphilePeer) bulk(ctx context.Context, pool *pgxpool.Pool, bodies [][]byte) error {
	texts := make([]string, len(bodies))
	for i, b := range bodies {
		texts[i] = string(b)
	}
	_, err := pool.Exec(ctx, `SELECT count(*) FROM graphile_worker.add_jobs((
		SELECT array_agg(json_populate_record(NULL::graphile_worker.job_spec, json_build_object('identifier', 'bench', 'payload', b::json)))
		FROM unnest($1::text[]) b))`, texts)
	return err
}

func (p *graphilePeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	if p.m.Workload != "deliver" {
		return nil, errors.New("graphile-worker is measured delivering alone")
	}
	command := p.command(ctx, pool, "work")
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			n, _ := strconv.Atoi(strings.TrimPrefix(lines.Text(), "+"))
			for range n {
				_ = h(ctx, nil)
			}
		}
	}()
	return func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		<-done
		return command.Wait()
	}, nil
}

func (p *graphilePeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM graphile_worker._private_jobs")
}
