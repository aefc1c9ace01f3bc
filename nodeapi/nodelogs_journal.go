// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/logquery"
)

const (
	killDelay = 2 * time.Second // for the output of journalctl, after it was killed
	maxUnits  = 4 << 20         // bytes of the list of units
)

// answer writes the logs of services: of those that the journal knows, and then the files of the others.
func (h *NodeLogs) answer(ctx context.Context, out io.Writer, q *logquery.Query) {
	var native, others []string
	units := h.units(ctx)
	for _, name := range q.Services {
		if strings.Contains(units, name+".service") {
			native = append(native, name)
		} else {
			others = append(others, name)
		}
	}
	if len(native) > 0 {
		h.journal(ctx, out, q, native)
	}
	switch {
	case len(others) == 0:
	case q.Limits != (logquery.Limits{}):
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
	case ctx.Err() != nil:
		fmt.Fprintf(out, "\ncontext error: %v\n", ctx.Err())
	default:
		for _, name := range others {
			h.fileOf(ctx, out, name)
		}
	}
}

// units returns what the journal says about units, one a line; nothing where there is no journal.
func (h *NodeLogs) units(ctx context.Context) string {
	var out bytes.Buffer
	cmd := h.command(ctx, "--field", "_SYSTEMD_UNIT")
	cmd.Stdout = &limitedWriter{w: &out, left: maxUnits}
	if err := cmd.Run(); err != nil {
		h.o.Logger.Info("journal does not list its units", "error", err)
		if !errors.Is(err, errTooMuch) {
			return ""
		}
	}
	return out.String()
}

// journal writes what journalctl says about services. It ends with ctx.
func (h *NodeLogs) journal(ctx context.Context, out io.Writer, q *logquery.Query, services []string) {
	cmd := h.command(ctx, q.JournalArguments(services)...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err == nil || exited || errors.Is(err, errTooMuch) {
		return // it has said itself what is wrong
	}
	h.o.Logger.Info("journal cannot be read", "error", err)
	if q.Limits.Boot == nil || *q.Limits.Boot == 0 {
		_, _ = io.WriteString(out, "\nerror: journal output not available\n")
	}
}

func (h *NodeLogs) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.o.Journal, args...)
	cmd.WaitDelay = killDelay
	return cmd
}

// fileOf writes the first file there is that may be the log of a service.
func (h *NodeLogs) fileOf(ctx context.Context, out io.Writer, service string) {
	err := h.copyFirst(ctx, out, service)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(out, "\nlog not found for %s\n", service)
	case err != nil:
		fmt.Fprintf(out, "\nerror getting log for %s: %v\n", service, err)
	}
}

func (h *NodeLogs) copyFirst(ctx context.Context, out io.Writer, service string) error {
	t, err := openLogTree(h.o.Dir)
	if err != nil {
		return err
	}
	defer t.close()
	for _, name := range candidates(service) {
		if err = t.copy(ctx, out, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// copy writes a regular file; a directory counts as not there.
func (t *logTree) copy(ctx context.Context, out io.Writer, name string) error {
	f, err := t.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist
	}
	_, err = io.Copy(out, &contextReader{ctx: ctx, r: f})
	return err
}

// contextReader ends with a context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

// Read reads unless the context has ended.
func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
