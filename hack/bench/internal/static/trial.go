// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/hack/bench/internal/trace"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

// Intervals at which the harness polls the runtime. Start times come from the runtime. Events without a time in the runtime,
// such as the removal of a container, are polled more often.
const (
	startPoll = 100 * time.Millisecond
	killPoll  = 25 * time.Millisecond
	gonePoll  = 20 * time.Millisecond
	cleanPoll = 200 * time.Millisecond
)

// trial is one measurement of one subject.
type trial struct {
	*bench
	sample *sample
	work   string
	labels map[string]string // labels of all its sandboxes and containers
	pods   []pod
	trace  *trace.Trace // nil without -trace
}

// phase completes a part of the measurement in the trace.
func (t *trial) phase(name string) {
	if t.trace == nil {
		return
	}
	if calls := t.trace.Take(); len(calls) > 0 {
		t.sample.Phases = append(t.sample.Phases, trace.NewPhase(name, calls))
	}
}

// measureAgent takes all figures of an agent.
func (t *trial) measureAgent(ctx context.Context, a agent) {
	p := paths{cri: t.runtime.Endpoint(), manifests: filepath.Join(t.work, "manifests"), work: t.work}
	if t.trace != nil {
		socket := filepath.Join(t.work, "cri.sock")
		proxy, err := trace.StartProxy(socket, t.runtime.Endpoint(), t.trace)
		if err != nil {
			t.sample.failed(err)
			return
		}
		defer func() { t.sample.failed(proxy.Close()) }()
		p.cri = "unix://" + socket
	}
	if info, err := os.Stat(a.Binary); err == nil {
		t.sample.add(binaryBytes, float64(info.Size()))
	}
	err := errors.Join(os.Mkdir(p.manifests, 0o755), writeManifests(p.manifests, t.pods))
	if t.opts.volumes > 0 {
		err = errors.Join(err, writeObjects(filepath.Join(t.work, "objects"), t.labels[cri.LabelPodNamespace]))
	}
	if err != nil {
		t.sample.failed(err)
		return
	}
	harness := ownCPU()
	run, err := startAgent(a, p)
	if err != nil {
		t.sample.failed(err)
		return
	}
	defer func() { t.sample.failed(run.stop(ctx, t.opts.stopLimit)) }()

	containers, err := t.awaitAll(ctx, run.start, run.alive)
	t.sample.add(harnessStarting, millicores(ownCPU()-harness, time.Since(run.start)))
	if err != nil {
		t.sample.failed(fmt.Errorf("%w; the agent's last output:\n%s", err, run.tail()))
		return
	}
	t.phase("starting")
	t.sample.failed(t.idle(ctx, run.pid()))
	t.phase("idle")
	t.sample.failed(t.sameContainers(ctx, containers))
	t.sample.failed(t.kill(ctx, containers, nil))
	t.phase("replacing")
	t.sample.failed(run.alive())
	t.sample.failed(t.tearDown(ctx, p.manifests))
	t.phase("stopping")
}

// awaitAll waits until every pod has a running container, and records when the last of them started.
func (t *trial) awaitAll(ctx context.Context, start time.Time, alive func() error) ([]*runtimeapi.Container, error) {
	var containers []*runtimeapi.Container
	err := wait.Poll(ctx, startPoll, t.opts.limit, func() (done bool, err error) {
		if err := alive(); err != nil {
			return false, err
		}
		containers, err = t.runtime.Running(ctx, t.labels)
		return len(containers) >= len(t.pods), err
	})
	seen := time.Now()
	if err != nil {
		return nil, fmt.Errorf("wait for all containers: %d of %d run: %w", len(containers), len(t.pods), err)
	}
	first, last := math.Inf(1), 0.0
	for _, c := range containers {
		status, err := t.runtime.Status(ctx, c.GetId())
		if err != nil {
			return nil, err
		}
		started := since(start, status.GetStartedAt(), seen)
		first, last = min(first, started), max(last, started)
	}
	t.sample.add(firstSeconds, first)
	t.sample.add(startSeconds, last)
	return containers, nil
}

// idle measures the usage of a session at rest, and with session 0 only that of the runtime and the machine. Without -idle
// it does nothing.
func (t *trial) idle(ctx context.Context, session int) error {
	if t.opts.idle == 0 {
		return nil
	}
	if err := wait.Sleep(ctx, t.opts.settle); err != nil {
		return err
	}
	proc := procFS("/proc")
	runtimePID := t.runtime.PID()
	clocks := []struct {
		metric metric
		read   func() (time.Duration, error)
	}{
		{harnessIdle, func() (time.Duration, error) { return ownCPU(), nil }},
		{machineMillicores, proc.machineCPU},
		{runtimeMillicores, func() (time.Duration, error) {
			stat, err := proc.stat(runtimePID)
			return stat.own, err
		}},
		{idleMillicores, func() (time.Duration, error) { return proc.sessionCPU(session) }},
	}
	start, before := time.Now(), make([]time.Duration, len(clocks))
	read := func(i int) (spent time.Duration, known bool, err error) {
		m := clocks[i].metric
		if m == runtimeMillicores && runtimePID == 0 || m == idleMillicores && session == 0 {
			return 0, false, nil
		}
		spent, err = clocks[i].read()
		return spent, err == nil, err
	}
	for i := range clocks {
		var err error
		if before[i], _, err = read(i); err != nil {
			return fmt.Errorf("measure idle: %w", err)
		}
	}
	if err := wait.Sleep(ctx, t.opts.idle); err != nil {
		return err
	}
	elapsed := time.Since(start)
	for i, clock := range clocks {
		after, known, err := read(i)
		if err != nil {
			return fmt.Errorf("measure idle: %w", err)
		}
		if known {
			t.sample.add(clock.metric, millicores(after-before[i], elapsed))
		}
	}
	if session == 0 {
		return nil
	}
	used, err := proc.sessionMemory(session)
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	t.sample.add(residentBytes, float64(used.rss))
	t.sample.add(proportionalBytes, float64(used.pss))
	t.sample.add(anonymousBytes, float64(used.anon))
	return nil
}

// sameContainers returns an error unless exactly the containers in before are running: an agent that restarts or duplicates
// containers was not idle.
func (t *trial) sameContainers(ctx context.Context, before []*runtimeapi.Container) error {
	now, err := t.runtime.Running(ctx, t.labels)
	if err != nil {
		return err
	}
	if len(before) != len(t.pods) || len(now) != len(t.pods) {
		return fmt.Errorf("%d pods had %d running containers, and %d after the idle time", len(t.pods), len(before), len(now))
	}
	for _, c := range now {
		if !slices.ContainsFunc(before, func(old *runtimeapi.Container) bool { return old.GetId() == c.GetId() }) {
			return fmt.Errorf("container %s was started while nothing happened", c.GetId())
		}
	}
	return nil
}

// kill kills containers at random times, each at most once, and records the time until each replacement has started. replace
// creates the replacement; if it is nil, the agent does.
func (t *trial) kill(ctx context.Context, containers []*runtimeapi.Container, replace func(*runtimeapi.Container) error) error {
	for _, i := range t.rand.Perm(len(containers))[:min(t.opts.kills, len(containers))] {
		victim := containers[i]
		process, err := t.runtime.InitProcess(ctx, victim.GetId())
		if err != nil {
			return err
		}
		gap := time.Second + time.Duration(t.rand.Int64N(int64(2*time.Second)))
		if err := wait.Sleep(ctx, gap); err != nil {
			return err
		}
		killed := time.Now()
		if err := process.Signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill container %s: %w", victim.GetId(), err)
		}
		if replace != nil {
			if err := replace(victim); err != nil {
				return err
			}
		}
		if err := t.awaitReplacement(ctx, victim, killed); err != nil {
			return err
		}
	}
	return nil
}

// awaitReplacement waits until another container runs in the victim's pod, and records the time of its start.
func (t *trial) awaitReplacement(ctx context.Context, victim *runtimeapi.Container, killed time.Time) error {
	labels := map[string]string{cri.LabelPodUID: victim.GetLabels()[cri.LabelPodUID]}
	err := wait.Poll(ctx, killPoll, t.opts.limit, func() (bool, error) {
		running, err := t.runtime.Running(ctx, labels)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(running, func(c *runtimeapi.Container) bool {
			return c.GetId() != victim.GetId() && c.GetMetadata().GetName() == victim.GetMetadata().GetName()
		})
		if i < 0 {
			return false, nil
		}
		seen := time.Now()
		status, err := t.runtime.Status(ctx, running[i].GetId())
		if err != nil {
			return false, err
		}
		t.sample.add(replaceSeconds, since(killed, status.GetStartedAt(), seen))
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the replacement of container %s: %w", victim.GetId(), err)
	}
	return nil
}

// tearDown removes all manifests, and records the time until containers and sandboxes are removed.
func (t *trial) tearDown(ctx context.Context, manifests string) error {
	start := time.Now()
	for _, p := range t.pods {
		if err := os.Remove(filepath.Join(manifests, p.Name+".yaml")); err != nil {
			return err
		}
	}
	err := wait.Poll(ctx, gonePoll, t.opts.limit, func() (bool, error) {
		running, err := t.runtime.Running(ctx, t.labels)
		return len(running) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until no container runs: %w", err)
	}
	t.sample.add(goneSeconds, time.Since(start).Seconds())

	every, stopped := gonePoll, false
	err = wait.Poll(ctx, every, t.opts.sandboxLimit, func() (bool, error) {
		sandboxes, err := t.runtime.Sandboxes(ctx, t.labels)
		if err == nil && !stopped && !slices.ContainsFunc(sandboxes, func(s *runtimeapi.PodSandbox) bool {
			return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		}) {
			stopped = true
			t.sample.add(stoppedSeconds, time.Since(start).Seconds())
		}
		if err == nil && len(sandboxes) == 0 {
			t.sample.add(removedSeconds, time.Since(start).Seconds())
			return true, nil
		}
		return false, err
	})
	if errors.Is(err, wait.ErrDeadline) && stopped {
		return nil // the agent keeps sandboxes: the table shows a missing figure
	}
	if err != nil {
		return fmt.Errorf("wait until no sandbox is left: %w", err)
	}
	return nil
}
