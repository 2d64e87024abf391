package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
)

func (a *app) secretsCommand() *cli.Command {
	return &cli.Command{
		Name: "secrets", Usage: "how signing secrets are encrypted at rest",
		Commands: []*cli.Command{{
			Name: "reencrypt", Usage: "encrypt everything with the first key of -secret-key",
			Description: "To change the key without downtime:\n" +
				"  1. give every server both keys, the new one behind the old: POSTLANE_SECRET_KEY=OLD,NEW\n" +
				"  2. when all of them run with it, the new one first: POSTLANE_SECRET_KEY=NEW,OLD\n" +
				"  3. postlane secrets reencrypt, with that setting too, until none is left\n" +
				"  4. take the old key away: POSTLANE_SECRET_KEY=NEW\n" +
				"It works in small transactions beside running servers, and can be interrupted and run again.",
			Flags: append(settings.Flags(settings.NeedSecretKey), jsonFlag(),
				&cli.BoolFlag{Name: "dry-run", Usage: "count only what is left to do"}),
			Action: a.each(a.withStore(settings.NeedSecretKey, nil, a.secretsReencrypt)),
		}},
	}
}

func (a *app) secretsReencrypt(ctx context.Context, c *cli.Command, store *delivery.Store, _ []string) error {
	var did delivery.Reencrypted
	var err error
	if c.Bool("dry-run") {
		if did.Left, err = store.StaleSecrets(ctx); err != nil {
			return err
		}
	} else {
		err = a.record(ctx, "reencrypt-secrets", "", func(e *audit.Entry) (err error) {
			did, err = store.Reencrypt(ctx)
			e.Detail = fmt.Sprintf("%d encrypted anew, %d left", did.Done, did.Left)
			return err
		})
	}
	printed := a.print(c, did, func(w io.Writer) {
		fmt.Fprintf(w, "%d secrets are encrypted anew; %d are left\n", did.Done, did.Left)
	})
	switch {
	case err != nil:
		return fmt.Errorf("do not remove the old key: %w", err)
	case did.Left > 0 && !c.Bool("dry-run"):
		return fmt.Errorf("%d were written meanwhile by a server that has another key first; give all of them the new one first, and run this again", did.Left)
	}
	return printed
}
