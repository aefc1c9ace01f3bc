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

// Periods and timeouts for reading the sources. Each source has its own goroutine: a hanging runtime or DNS server does not delay
// the other sources.
const (
	imagesPeriod  = 30 * time.Second // like the kubelet's cache
	machinePeriod = time.Minute
	hostPeriod    = 10 * time.Second
	versionPeriod = time.Minute
	unreadyPeriod = time.Second // for a runtime that is not ready

	sourceTimeout    = 10 * time.Second
	imagesTimeout    = 30 * time.Second
	firstReadTimeout = 2 * time.Second // how long Run waits at its start until each source was read once
)

// sourceReader reads the sources of the node status in the background, and stores their last results.
type sourceReader struct {
	opts         *ReporterOptions
	factsChanged func()

	mu           sync.Mutex        // guards the fields below
	facts        nodestatus.Facts  // Host, Machine, Runtime, Images
	lastReady    time.Time         // when the runtime was last ready, on the monotonic clock
	lastVersion  time.Time         // when the version of the runtime was last read, on the monotonic clock
	fastUntil    time.Time         // until then, a runtime that is not ready is read every 100 ms
	loggedErrors map[string]string // last logged error by source; empty: none
}

// currentFacts returns the last results of all sources. wall is the current wall clock time, from which the time stamps of
// the node status are computed.
func (g *sourceReader) currentFacts(wall time.Time) nodestatus.Facts {
	g.mu.Lock()
	f := g.facts
	if !g.lastReady.IsZero() {
		f.Runtime.LastReady = wall.Add(-time.Since(g.lastReady))
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

// machineInfo returns the last result of Options.Capacity, or the zero value before the first result.
func (g *sourceReader) machineInfo() machine.Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.Machine
}

// startReading starts a goroutine of wg for each source, which reads it periodically. The channel is closed once each was read
// or has failed.
func (g *sourceReader) startReading(ctx context.Context, wg *sync.WaitGroup) <-chan struct{} {
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
	g.fastUntil = time.Now().Add(fastTimeout)
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

// updateFacts calls change with the facts, which it may modify, while mu is held. If change returns true, updateFacts then
// calls factsChanged.
func (g *sourceReader) updateFacts(change func(*nodestatus.Facts) (changed bool)) {
	g.mu.Lock()
	changed := change(&g.facts)
	g.mu.Unlock()
	if changed {
		g.factsChanged()
	}
}

// reportSourceError logs an error of the named source and passes it to Hooks.Error, once while it persists. It logs the recovery
// if err is nil.
func (g *sourceReader) reportSourceError(ctx context.Context, source string, err error) {
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	previous, current := g.loggedErrors[source], errorText(err)
	if g.loggedErrors == nil {
		g.loggedErrors = map[string]string{}
	}
	g.loggedErrors[source] = current
	g.mu.Unlock()
	switch {
	case current == previous:
	case err != nil:
		g.opts.Logger.Warn("read facts of node", "node", g.opts.Config.Name, "source", source, "error", err)
		callHook(g.opts.Hooks.Error, fmt.Errorf("read %s: %w", source, err))
	default:
		g.opts.Logger.Info("read facts of node recovered", "node", g.opts.Config.Name, "source", source)
	}
}

func (g *sourceReader) readHost(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	host := g.opts.Hosts.Host(within, &g.opts.Config)
	if ctx.Err() == nil {
		g.updateFacts(func(f *nodestatus.Facts) bool {
			same := isSameHost(f.Host, host)
			f.Host = host
			return !same
		})
	}
	return hostPeriod
}

// isSameHost reports whether two hosts have equal addresses, and both or none have an error. It does not compare error
// texts, because they may vary.
func isSameHost(a, b nodestatus.Host) bool {
	return (a.Err == nil) == (b.Err == nil) && a.Default == b.Default && slices.Equal(a.Interfaces, b.Interfaces) && slices.Equal(a.Named, b.Named)
}

func (g *sourceReader) readMachine(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	machine, err := g.opts.Capacity.Machine(within)
	g.reportSourceError(ctx, "capacity", err)
	if err == nil {
		g.updateFacts(func(f *nodestatus.Facts) bool {
			same := reflect.DeepEqual(f.Machine, machine)
			f.Machine = machine
			return !same
		})
	}
	return machinePeriod
}

// readImages reads the images of the runtime, and returns the period until the next read.
func (g *sourceReader) readImages(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	images, err := g.opts.Images.ListImages(within)
	g.reportSourceError(ctx, "images", err)
	if err == nil {
		g.updateFacts(func(f *nodestatus.Facts) bool {
			f.Images, f.ImagesKnown = images, true
			return false // images change often: report them with the next periodic status
		})
	}
	return imagesPeriod
}

// readRuntime reads the status and version of the runtime, and returns the period until the next read.
func (g *sourceReader) readRuntime(ctx context.Context) time.Duration {
	if g.opts.Runtime == nil {
		g.updateFacts(func(f *nodestatus.Facts) bool {
			known := f.Runtime.Observed
			f.Runtime.Observed = true
			g.lastReady = time.Now()
			return !known
		})
		return nodestatus.RuntimePeriod
	}
	within, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	status, err := g.opts.Runtime.Status(within)
	g.reportSourceError(ctx, "runtime", err)
	if err != nil {
		g.updateFacts(func(*nodestatus.Facts) bool {
			g.lastVersion = time.Time{} // the runtime may restart with another version
			return false
		})
		return g.retryPeriod()
	}
	g.updateFacts(func(f *nodestatus.Facts) bool { return g.applyStatus(f, status) })
	g.readVersion(within)
	g.mu.Lock()
	ready := g.facts.Runtime.NotReady == nil && g.facts.Runtime.NetworkNotReady == nil
	g.mu.Unlock()
	if !ready {
		return g.retryPeriod()
	}
	return nodestatus.RuntimePeriod
}

// retryPeriod returns the period until the next read of the status while the runtime is not ready.
func (g *sourceReader) retryPeriod() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.fastUntil) {
		return fastPeriod
	}
	return unreadyPeriod
}

// applyStatus stores the status of the runtime in f. It reports whether this may change the condition Ready of the node. The
// caller holds mu.
func (g *sourceReader) applyStatus(f *nodestatus.Facts, status cri.Status) (changed bool) {
	previous := f.Runtime
	f.Runtime = previous.WithStatus(status, time.Now())
	current := f.Runtime
	if current.NotReady == nil {
		changed = g.lastReady.IsZero() || time.Since(g.lastReady) >= nodestatus.RuntimeTimeout
		g.lastReady = time.Now()
	}
	return changed || !previous.Observed || errorText(previous.NotReady) != errorText(current.NotReady) || errorText(previous.NetworkNotReady) != errorText(current.NetworkNotReady)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readVersion reads the name and version of the runtime. It does nothing if they were read in the last minute.
func (g *sourceReader) readVersion(ctx context.Context) {
	g.mu.Lock()
	fresh := !g.lastVersion.IsZero() && time.Since(g.lastVersion) < versionPeriod
	g.mu.Unlock()
	if fresh {
		return
	}
	v, err := g.opts.Runtime.Version(ctx)
	g.reportSourceError(ctx, "runtime version", err)
	if err != nil {
		return
	}
	g.updateFacts(func(f *nodestatus.Facts) bool {
		was := f.Runtime
		f.Runtime, g.lastVersion = was.WithVersion(v), time.Now()
		return was.Name != f.Runtime.Name || was.Version != f.Runtime.Version
	})
}
