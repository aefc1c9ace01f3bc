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
	killDelay = 2 * time.Second // for reading the output of journalctl after it was killed
	maxUnits  = 4 << 20         // bytes of the list of systemd units
)

// writeServiceLogs writes the logs of the queried services: from the journal if it has a systemd unit of the service, then from
// log files.
func (h *NodeLogs) writeServiceLogs(ctx context.Context, out io.Writer, query *logquery.Query) {
	var inJournal, inFiles []string
	unitList := h.listUnits(ctx)
	for _, name := range query.Services {
		if strings.Contains(unitList, name+".service") {
			inJournal = append(inJournal, name)
		} else {
			inFiles = append(inFiles, name)
		}
	}
	if len(inJournal) > 0 {
		h.writeJournal(ctx, out, query, inJournal)
	}
	switch {
	case len(inFiles) == 0:
	case query.Limits != (logquery.Limits{}):
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", inFiles)
	case ctx.Err() != nil:
		fmt.Fprintf(out, "\ncontext error: %v\n", ctx.Err())
	default:
		for _, name := range inFiles {
			h.writeServiceFile(ctx, out, name)
		}
	}
}

// listUnits returns the systemd units that have entries in the journal, one per line. If the journal cannot be read, the
// result is empty.
func (h *NodeLogs) listUnits(ctx context.Context) string {
	var out bytes.Buffer
	cmd := h.journalCommand(ctx, "--field", "_SYSTEMD_UNIT")
	cmd.Stdout = &limitedWriter{w: &out, remaining: maxUnits}
	if err := cmd.Run(); err != nil {
		h.o.Logger.Info("journal does not list its units", "error", err)
		if !errors.Is(err, errTooMuch) {
			return ""
		}
	}
	return out.String()
}

// writeJournal writes the journal of these services to out. It runs journalctl with the limits of the query, and kills it
// when ctx ends.
func (h *NodeLogs) writeJournal(ctx context.Context, out io.Writer, query *logquery.Query, services []string) {
	cmd := h.journalCommand(ctx, query.JournalArguments(services)...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err == nil || exited || errors.Is(err, errTooMuch) {
		return // the output of journalctl has the error
	}
	h.o.Logger.Info("journal cannot be read", "error", err)
	if query.Limits.Boot == nil || *query.Limits.Boot == 0 {
		_, _ = io.WriteString(out, "\nerror: journal output not available\n")
	}
}

func (h *NodeLogs) journalCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.o.Journal, args...)
	cmd.WaitDelay = killDelay
	return cmd
}

// writeServiceFile writes the first existing log file of the service, or a line with the error.
func (h *NodeLogs) writeServiceFile(ctx context.Context, out io.Writer, service string) {
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
	for _, name := range serviceLogPaths(service) {
		if err = t.copyFile(ctx, out, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// copyFile writes the content of the named regular file to out. For a directory it returns fs.ErrNotExist.
func (t *logTree) copyFile(ctx context.Context, out io.Writer, name string) error {
	f, err := t.openFile(name)
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

// contextReader reads from r until ctx ends. After that it returns the error of ctx.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

// Read reads from the underlying reader. It returns an error once the context has ended.
func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
