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

// DefaultTimeout limits the start of a [Plane], which usually takes about a second.
const DefaultTimeout = 2 * time.Minute

// maxAttempts is how often a start is tried if another process takes one of the ports.
const maxAttempts = 3

// Options configures a control plane. The zero value runs etcd and the API server only.
type Options struct {
	ControllerManager bool // run the controller manager: service accounts, root certificates, node lifecycle, garbage collection and signing
	Scheduler         bool // run the scheduler
	Audit             bool // log all requests: see [Plane.Requests]

	APIServerArgs         []string      // additional flags of the API server, such as --feature-gates=X=true
	ControllerManagerArgs []string      // additional flags of the controller manager, such as --cluster-signing-duration=3m
	SchedulerArgs         []string      // additional flags of the scheduler, such as --kube-api-qps=1000
	Timeout               time.Duration // of the start; zero: DefaultTimeout
}

// programs returns the names of the programs that o requires.
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

// Plane is a control plane of child processes. Create one with [Start] or [StartPlane].
type Plane struct {
	*Access

	dir   string     // logs, certificates and data of etcd
	bin   string     // directory of the programs
	parts []*program // in the order of their start
}

// Start runs a control plane until the test ends. It skips the test if the programs are not built. To share one control
// plane between tests, call [StartPlane] in TestMain.
func Start(t testing.TB, opts Options) *Plane {
	t.Helper()
	dir := RequirePrograms(t, opts.programs()...)
	began := time.Now()
	p, err := StartPlane(t.Context(), dir, t.TempDir(), opts)
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

// StartPlane runs a control plane. bin is the directory of the programs. dir is an empty directory for the files. The caller
// must call [Plane.Close] and then remove dir.
func StartPlane(ctx context.Context, bin, dir string, opts Options) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(opts.Timeout, DefaultTimeout))
	defer cancel()
	for attempt := 1; ; attempt++ {
		p := &Plane{bin: bin, dir: filepath.Join(dir, fmt.Sprint(attempt))}
		err := p.startAll(ctx, opts)
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

// startAll starts the components and waits until they are ready.
func (p *Plane) startAll(ctx context.Context, opts Options) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	if err := p.planParts(opts); err != nil {
		return err
	}
	for _, part := range p.parts {
		if err := p.startPart(ctx, part); err != nil {
			return err
		}
	}
	return p.awaitNamespaces(ctx, opts.ControllerManager)
}

func (p *Plane) startPart(ctx context.Context, part *program) error {
	if err := part.start(); err != nil {
		return err
	}
	return part.awaitReady(ctx)
}

// awaitNamespaces waits for the default namespaces and, if accounts is true, for the service account and config map that
// pods need.
func (p *Plane) awaitNamespaces(ctx context.Context, accounts bool) error {
	paths := []string{"/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"}
	if accounts {
		// The controller manager creates both.
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

// isPortTaken reports whether a component failed to start because another process uses one of its ports. err is the error of
// the start.
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

// Close kills the processes of all components in the reverse order of their start. The files remain.
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

// Kill kills the component with this name, such as [APIServer]. Use [Plane.Restart] to start it again.
func (p *Plane) Kill(name string) error {
	part, err := p.findPart(name)
	if err != nil {
		return err
	}
	return part.killProcess()
}

// Restart starts the component with this name and waits until it is ready. It first kills a running component. Arguments,
// data and port stay the same.
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

// LogPath returns the path of the log file of a component.
func (p *Plane) LogPath(name string) string { return filepath.Join(p.dir, name+".log") }

// newHealthCheck returns a function that checks a component by requesting path from this port of the loopback interface.
func (p *Plane) newHealthCheck(scheme string, port int, path string) func(context.Context) error {
	client := newClient(loopbackURL(scheme, port), &tls.Config{RootCAs: p.RootPool()}, "")
	return func(ctx context.Context) error {
		defer client.Close()
		return client.Do(ctx, http.MethodGet, path, nil, nil)
	}
}
