// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// How often what takes time is read, and how long that may take. Each has a goroutine of its own, so that a runtime or a name server
// that hangs delays nothing but what it is asked for.
const (
	imagesPeriod  = 30 * time.Second // as the kubelet's cache
	machinePeriod = time.Minute
	hostPeriod    = 10 * time.Second
	versionPeriod = time.Minute
	unreadyPeriod = time.Second // of a runtime that is not ready

	sourceTimeout = 10 * time.Second
	imagesTimeout = 30 * time.Second
	firstFacts    = 2 * time.Second // for which the first readings are waited for
)

// gatherer keeps what sources have said last.
type gatherer struct {
	opts    *ReporterOptions
	changed func()

	mu      sync.Mutex        // guards what follows
	facts   nodestatus.Facts  // Host, Machine, Runtime, Images
	synced  time.Time         // when the runtime was last ready, by the clock that does not jump
	version time.Time         // when it was last asked for its version, likewise
	hurry   time.Time         // until when a runtime that is not ready is asked all the time
	said    map[string]string // what is wrong with each source, as it was logged
}

// current returns all facts as of a time of the clock on the wall.
func (g *gatherer) current(wall time.Time) nodestatus.Facts {
	g.mu.Lock()
	f := g.facts
	if !g.synced.IsZero() {
		f.Runtime.LastReady = wall.Add(-time.Since(g.synced))
	}
	g.mu.Unlock()
	f.Config, f.Now = g.opts.Config, wall
	if g.opts.Conditions != nil {
		f.Health = g.opts.Conditions.Health()
	}
	if g.opts.Devices != nil {
		f.Devices = g.opts.Devices.Devices()
	}
	if g.opts.Volumes != nil {
		f.VolumesInUse, f.VolumesKnown = g.opts.Volumes.VolumesInUse()
	}
	return f
}

// machine is what is known of the machine.
func (g *gatherer) machine() machine.Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.Machine
}

// start begins to read, and returns a channel that is closed when each source has been read once, or has failed to be. What it starts
// ends with ctx, as far as the sources do.
func (g *gatherer) start(ctx context.Context, wg *sync.WaitGroup) <-chan struct{} {
	reads := []func(context.Context) (period time.Duration){g.readRuntime}
	if g.opts.Hosts != nil {
		reads = append(reads, g.readHost)
	}
	if g.opts.Capacity != nil {
		reads = append(reads, g.readMachine)
	}
	if g.opts.Images != nil {
		reads = append(reads, g.readImages)
	}
	g.mu.Lock()
	g.hurry = time.Now().Add(fastTimeout)
	g.mu.Unlock()
	var first sync.WaitGroup
	first.Add(len(reads))
	for _, read := range reads {
		wg.Go(func() {
			period := read(ctx)
			first.Done()
			for sleep.For(ctx, period) == nil {
				period = read(ctx)
			}
		})
	}
	done := make(chan struct{})
	wg.Go(func() {
		first.Wait()
		close(done)
	})
	return done
}

// set changes the facts, and says so where they are others than before.
func (g *gatherer) set(change func(*nodestatus.Facts) (changed bool)) {
	g.mu.Lock()
	changed := change(&g.facts)
	g.mu.Unlock()
	if changed {
		g.changed()
	}
}

// failed reports an error of a source, or that there is none any more. What stays as it is is logged once.
func (g *gatherer) failed(ctx context.Context, source string, err error) {
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	was, now := g.said[source], text(err)
	if g.said == nil {
		g.said = map[string]string{}
	}
	g.said[source] = now
	g.mu.Unlock()
	switch {
	case now == was:
	case err != nil:
		g.opts.Logger.Warn("read facts of node", "node", g.opts.Config.Name, "source", source, "error", err)
		call(g.opts.Hooks.Error, fmt.Errorf("read %s: %w", source, err))
	default:
		g.opts.Logger.Info("facts of node are read again", "node", g.opts.Config.Name, "source", source)
	}
}

func (g *gatherer) readHost(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	host := g.opts.Hosts.Host(within, &g.opts.Config)
	if ctx.Err() == nil {
		g.set(func(f *nodestatus.Facts) bool {
			same := sameHost(f.Host, host)
			f.Host = host
			return !same
		})
	}
	return hostPeriod
}

// sameHost compares all but the texts of errors, which may have what changes in them.
func sameHost(a, b nodestatus.Host) bool {
	return (a.Err == nil) == (b.Err == nil) && a.Default == b.Default && slices.Equal(a.Interfaces, b.Interfaces) && slices.Equal(a.Named, b.Named)
}

func (g *gatherer) readMachine(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	machine, err := g.opts.Capacity.Machine(within)
	g.failed(ctx, "capacity", err)
	if err == nil {
		g.set(func(f *nodestatus.Facts) bool {
			same := reflect.DeepEqual(f.Machine, machine)
			f.Machine = machine
			return !same
		})
	}
	return machinePeriod
}

// readImages reads the images. They are no reason to report at once: they change with every pull.
func (g *gatherer) readImages(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	images, err := g.opts.Images.ListImages(within)
	g.failed(ctx, "images", err)
	if err == nil {
		g.set(func(f *nodestatus.Facts) bool {
			f.Images, f.ImagesKnown = images, true
			return false
		})
	}
	return imagesPeriod
}

// readRuntime asks the runtime how it is, more often as long as it is not ready.
func (g *gatherer) readRuntime(ctx context.Context) time.Duration {
	if g.opts.Runtime == nil {
		g.set(func(f *nodestatus.Facts) bool {
			known := f.Runtime.Observed
			f.Runtime.Observed = true
			g.synced = time.Now()
			return !known
		})
		return nodestatus.RuntimePeriod
	}
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	status, err := g.opts.Runtime.Status(within)
	g.failed(ctx, "runtime", err)
	if err != nil {
		g.set(func(*nodestatus.Facts) bool {
			g.version = time.Time{} // it may come back as another one
			return false
		})
		return g.unready()
	}
	g.set(func(f *nodestatus.Facts) bool { return g.note(f, status) })
	g.readVersion(within)
	g.mu.Lock()
	ready := g.facts.Runtime.NotReady == nil && g.facts.Runtime.NetworkNotReady == nil
	g.mu.Unlock()
	if !ready {
		return g.unready()
	}
	return nodestatus.RuntimePeriod
}

// unready is how long to wait before a runtime is asked again that was not ready.
func (g *gatherer) unready() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.hurry) {
		return fastPeriod
	}
	return unreadyPeriod
}

// note takes a status, and reports whether it changes whether the node is ready. The caller holds the lock.
func (g *gatherer) note(f *nodestatus.Facts, status cri.Status) (changed bool) {
	was := f.Runtime
	f.Runtime = was.WithStatus(status, time.Now())
	now := f.Runtime
	if now.NotReady == nil {
		changed = g.synced.IsZero() || time.Since(g.synced) >= nodestatus.RuntimeTimeout
		g.synced = time.Now()
	}
	return changed || !was.Observed || text(was.NotReady) != text(now.NotReady) || text(was.NetworkNotReady) != text(now.NetworkNotReady)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readVersion asks the runtime who it is, once a minute.
func (g *gatherer) readVersion(ctx context.Context) {
	g.mu.Lock()
	fresh := !g.version.IsZero() && time.Since(g.version) < versionPeriod
	g.mu.Unlock()
	if fresh {
		return
	}
	v, err := g.opts.Runtime.Version(ctx)
	g.failed(ctx, "runtime version", err)
	if err != nil {
		return
	}
	g.set(func(f *nodestatus.Facts) bool {
		was := f.Runtime
		f.Runtime, g.version = was.WithVersion(v), time.Now()
		return was.Name != f.Runtime.Name || was.Version != f.Runtime.Version
	})
}
