// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirlock"
)

// File names in the directory of a [SharedPlane].
const (
	recordName = "plane.json"
	lockName   = "lock"
	usersName  = "users"
)

// SharedPlane gives access to a control plane that another process runs: see [Serve] and [Open].
type SharedPlane struct {
	*Access

	dir    string
	record planeRecord
}

// planeRecord describes a running control plane for other processes, as a JSON file.
type planeRecord struct {
	URL  string         `json:"url"`
	PID  int            `json:"pid"` // process that runs [Serve]
	Dir  string         `json:"dir"` // directory of the [Plane]
	PIDs map[string]int `json:"own"` // process IDs of the components, by name
}

// Serve runs a control plane, to which other processes connect with [Open], until ctx ends or a component exits, which is an
// error. The audit log and bootstrap tokens are enabled. dir is only for Serve, which deletes the files of a previous call
// first. It returns an error if another process serves in dir.
func Serve(ctx context.Context, bin, dir string, opts Options) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := dirlock.Acquire(dir, lockName)
	if err != nil {
		return fmt.Errorf("serve control plane in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	for _, name := range []string{recordName, usersName, "plane"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	opts.Audit = true
	p, err := StartPlane(ctx, bin, filepath.Join(dir, "plane"), opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Join(dir, recordName)), p.Close()) }()
	if err := p.AllowBootstrap(ctx); err != nil {
		return err
	}
	if err := p.writeRecord(dir); err != nil {
		return err
	}
	return p.awaitExit(ctx)
}

// writeRecord writes the planeRecord to dir atomically.
func (p *Plane) writeRecord(dir string) error {
	rec := planeRecord{URL: p.url, PID: os.Getpid(), Dir: p.dir, PIDs: map[string]int{}}
	for _, part := range p.parts {
		rec.PIDs[part.name] = part.process.Pid
	}
	text, err := json.MarshalIndent(rec, "", "\t")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// awaitExit waits until ctx ends and returns nil. If a component exits before that, it returns an error.
func (p *Plane) awaitExit(ctx context.Context) error {
	ended := make(chan *program, len(p.parts))
	for _, part := range p.parts {
		go func() { // the component exits at the latest when Close kills it
			<-part.exited
			ended <- part
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case part := <-ended:
		return &exitError{fmt.Errorf("%s ended%s", part.name, part.quoteLog())}
	}
}

// Open returns access to the control plane that another process runs in dir by calling [Serve]. The error wraps
// [fs.ErrNotExist] if there is no such process.
func Open(dir string) (*SharedPlane, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, fmt.Errorf("open control plane: %w", err)
	}
	s := &SharedPlane{dir: dir}
	if err := json.Unmarshal(text, &s.record); err != nil {
		return nil, fmt.Errorf("open control plane: parse %s: %w", filepath.Join(dir, recordName), err)
	}
	// If Serve was killed, its record is outdated.
	held, err := dirlock.IsLocked(dir, lockName)
	if err == nil && !held {
		err = fmt.Errorf("process %d has ended: %w", s.record.PID, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open control plane: %w", err)
	}
	ca, err := readAuthority(filepath.Join(s.record.Dir, "ca.crt"), filepath.Join(s.record.Dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("open control plane: %w", err)
	}
	s.Access = &Access{url: s.record.URL, ca: ca, dir: filepath.Join(dir, usersName)}
	if err := os.MkdirAll(s.Access.dir, 0o700); err != nil {
		return nil, err
	}
	return s, s.openAdmin()
}

// PIDs returns the process IDs of the components, by name.
func (s *SharedPlane) PIDs() map[string]int { return maps.Clone(s.record.PIDs) }

// LogPath returns the path of the log file of a component.
func (s *SharedPlane) LogPath(name string) string { return filepath.Join(s.record.Dir, name+".log") }

// AuditPath returns the path of the audit log of the API server.
func (s *SharedPlane) AuditPath() string { return filepath.Join(s.record.Dir, auditName) }

// AdminKubeconfig writes a kubeconfig for a user in the group system:masters and returns its path. Each call returns the
// same path.
func (s *SharedPlane) AdminKubeconfig() (path string, err error) {
	return s.writeUserKubeconfig("admin", "admin", "system:masters")
}

// NodeKubeconfig writes a kubeconfig for the node with this name and returns its path. The path depends only on the name.
func (s *SharedPlane) NodeKubeconfig(name string) (path string, err error) {
	if !filepath.IsLocal(name) || filepath.Base(name) != name {
		return "", fmt.Errorf("write kubeconfig of node %q: it is no name of a node", name)
	}
	return s.writeUserKubeconfig("node-"+name, "system:node:"+name, "system:nodes")
}

func (s *SharedPlane) writeUserKubeconfig(name, user string, groups ...string) (string, error) {
	base := filepath.Join(s.dir, usersName, name)
	return base + ".conf", s.writeConfig(base, s.url, user, groups...)
}

// Stop terminates the process that runs [Serve] and waits until its control plane has stopped.
func (s *SharedPlane) Stop(ctx context.Context) error {
	process, err := os.FindProcess(s.record.PID)
	if err == nil {
		err = process.Signal(syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop control plane: end process %d: %w", s.record.PID, err)
	}
	for {
		held, err := dirlock.IsLocked(s.dir, lockName)
		if err != nil || !held {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop control plane: wait for process %d: %w", s.record.PID, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}
