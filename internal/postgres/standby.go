package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// StartStandby makes a streaming standby of a primary from nothing in config.Dir, which
// must not hold data, and returns when it answers. To the primary it has a name, for
// synchronous_standby_names. ctx bounds the start only.
func StartStandby(ctx context.Context, primary *Server, name string, config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(config.Dir), 0o755); err != nil {
		return nil, err
	}
	backup := exec.CommandContext(ctx, filepath.Join(primary.Binaries().Dir, "pg_basebackup"),
		"--pgdata", config.Dir, "--dbname", primary.URL("postgres")+"&application_name="+url.QueryEscape(name), "--write-recovery-conf", "--checkpoint=fast")
	if said, err := backup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, said)
	}
	if err := sameOwner(primary.Dir(), config.Dir); err != nil {
		return nil, err
	}
	return Start(ctx, config)
}

// sameOwner gives a directory and all in it to the owner of another.
func sameOwner(as, dir string) error {
	info, err := os.Stat(as)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}
