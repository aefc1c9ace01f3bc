// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// DefaultTimeout is how long the start of a [Plane] may take: a hundred times what it does on a machine at rest.
const DefaultTimeout = 2 * time.Minute

// attempts is how often a plane is started whose ports others take meanwhile.
const maxAttempts = 3

// Options say what runs beside etcd and the API server. The zero value is nothing.
type Options struct {
	ControllerManager bool // service accounts, their root certificate, node life cycle, garbage collection, signing
	Scheduler         bool
	Audit             bool // the API server writes a line for each request: [Plane.Requests]

	APIServerArgs         []string      // more flags of the API server, such as --feature-gates=X=true
	ControllerManagerArgs []string      // more flags of the controller manager, such as --cluster-signing-duration=3m
	Timeout               time.Duration // for the start; zero: DefaultTimeout
}

// programs returns what has to be built.
func (o Options) programs() []string {
	programs := []string{Etcd, APIServer}
	if o.ControllerManager {
		programs = append(programs, ControllerManager)
	}
	if o.Scheduler {
		programs = append(programs, Scheduler)
	}
	return programs
}

// Plane is a control plane of processes. Get one from [Start] or [StartPlane].
type Plane struct {
	*Access

	dir   string     // logs, certificates, data of etcd
	bin   string     // programs
	parts []*program // in the order in which they start
}

// Start runs a control plane for one test. Whoever starts one for several tests uses [StartPlane] in TestMain. The test is skipped
// where the programs have not been built.
func Start(t testing.TB, o Options) *Plane {
	t.Helper()
	dir := RequirePrograms(t, o.programs()...)
	began := time.Now()
	p, err := StartPlane(t.Context(), dir, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, part := range p.parts {
				t.Logf("%s%s", part.name, part.quoteLog())
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the control plane is ready after %v", time.Since(began).Round(time.Millisecond))
	return p
}

// StartPlane runs a control plane of the programs in the directory bin. What it writes is below dir, which is empty and the
// caller's to remove after [Plane.Close].
func StartPlane(ctx context.Context, bin, dir string, o Options) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, DefaultTimeout))
	defer cancel()
	for attempt := 1; ; attempt++ {
		p := &Plane{bin: bin, dir: filepath.Join(dir, fmt.Sprint(attempt))}
		err := p.startAll(ctx, o)
		if err == nil {
			return p, nil
		}
		taken := p.isPortTaken(err)
		err = errors.Join(err, p.Close())
		if attempt == maxAttempts || !taken {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
	}
}

func (p *Plane) startAll(ctx context.Context, o Options) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	if err := p.planParts(o); err != nil {
		return err
	}
	for _, part := range p.parts {
		if err := p.startPart(ctx, part); err != nil {
			return err
		}
	}
	return p.awaitNamespaces(ctx, o.ControllerManager)
}

func (p *Plane) startPart(ctx context.Context, part *program) error {
	if err := part.start(); err != nil {
		return err
	}
	return part.awaitReady(ctx)
}

// awaitNamespaces waits for what the API server makes itself right after it is ready, and for what the controller manager
// adds to that before a pod can be created.
func (p *Plane) awaitNamespaces(ctx context.Context, accounts bool) error {
	paths := []string{"/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"}
	if accounts {
		paths = append(paths, "/api/v1/namespaces/default/serviceaccounts/default", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
	}
	for _, path := range paths {
		for {
			err := p.Admin().Do(ctx, http.MethodGet, path, nil, nil)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for what every cluster has: %w", err)
			case <-time.After(pollInterval):
			}
		}
	}
	return nil
}

// portTaken reports whether an error of the start is that another process has taken a port.
func (p *Plane) isPortTaken(err error) bool {
	if _, ended := errors.AsType[*exitError](err); !ended {
		return false
	}
	for _, part := range p.parts {
		if part.process != nil && part.isPortTaken() {
			return true
		}
	}
	return false
}

// Close ends all processes, the last one first. What they have written stays.
func (p *Plane) Close() error {
	var errs []error
	for _, part := range slices.Backward(p.parts) {
		errs = append(errs, part.killProcess())
	}
	if p.Access != nil {
		p.Admin().Close()
	}
	return errors.Join(errs...)
}

// Kill ends a part, such as [APIServer], as a crash would. [Plane.Restart] brings it back.
func (p *Plane) Kill(name string) error {
	part, err := p.findPart(name)
	if err != nil {
		return err
	}
	return part.killProcess()
}

// Restart kills a part if it runs, starts it with the same arguments, on the same data and port, and waits until it is ready.
func (p *Plane) Restart(ctx context.Context, name string) error {
	part, err := p.findPart(name)
	if err != nil {
		return err
	}
	if err := part.killProcess(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	return p.startPart(ctx, part)
}

func (p *Plane) findPart(name string) (*program, error) {
	for _, part := range p.parts {
		if part.name == name {
			return part, nil
		}
	}
	return nil, fmt.Errorf("the control plane has no %s: it is asked for in Options", name)
}

// LogPath returns the log file of a part.
func (p *Plane) LogPath(name string) string { return filepath.Join(p.dir, name+".log") }

// healthy returns a function that asks a server on loopback for its health.
func (p *Plane) newHealthCheck(scheme string, port int, path string) func(context.Context) error {
	client := newClient(loopbackURL(scheme, port), &tls.Config{RootCAs: p.RootPool()}, "")
	return func(ctx context.Context) error {
		defer client.Close()
		return client.Do(ctx, http.MethodGet, path, nil, nil)
	}
}
