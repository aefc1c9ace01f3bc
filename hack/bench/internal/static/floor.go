// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// measureFloor takes the figures that bare CRI calls reach, parallel pods at a time. Idle and replacements do not depend
// on that: they are taken once per number of pods, where all says so.
func (t *trial) measureFloor(ctx context.Context, parallel int, all bool) {
	t.runtime.Trace = t.trace
	defer func() { t.runtime.Trace = nil }() // before the pods are cleaned away
	harness := ownCPU()
	start := time.Now()
	err := wait.Each(ctx, len(t.pods), parallel, func(i int) error { return t.startPod(ctx, t.pods[i]) })
	if err != nil {
		t.sample.failed(err)
		return
	}
	containers, err := t.awaitAll(ctx, start, func() error { return nil })
	t.sample.add(harnessStarting, millicores(ownCPU()-harness, time.Since(start)))
	if err != nil {
		t.sample.failed(err)
		return
	}
	t.phase("starting")
	if all {
		t.sample.failed(t.idle(ctx, 0))
		t.sample.failed(t.createQuietly(ctx, containers))
		t.sample.failed(t.kill(ctx, containers, func(victim *runtimeapi.Container) error {
			return t.replace(ctx, victim)
		}))
		t.phase("replacing")
	}
	t.sample.failed(t.stopAll(ctx, parallel))
	t.phase("stopping")
}

// startPod makes the sandbox and the container of a pod.
func (t *trial) startPod(ctx context.Context, p pod) error {
	dir := t.podDir(p)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"hosts", "termination-log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil {
			return err
		}
	}
	if err := p.makeVolumes(dir); err != nil {
		return err
	}
	sandbox, err := t.runtime.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandboxConfig(t.work)})
	if err != nil {
		return fmt.Errorf("run sandbox of %s: %w", p.Name, err)
	}
	_, err = t.startContainer(ctx, p, sandbox.GetPodSandboxId(), "main", 0)
	return err
}

// startContainer is CreateContainer and StartContainer; it returns the id.
func (t *trial) startContainer(ctx context.Context, p pod, sandbox, name string, attempt uint32) (string, error) {
	created, err := t.runtime.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId:  sandbox,
		Config:        p.containerConfig(name, t.podDir(p), attempt),
		SandboxConfig: p.sandboxConfig(t.work),
	})
	if err != nil {
		return "", fmt.Errorf("create container of %s: %w", p.Name, err)
	}
	id := created.GetContainerId()
	if _, err := t.runtime.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return "", fmt.Errorf("start container of %s: %w", p.Name, err)
	}
	return id, nil
}

// stopContainer is StopContainer.
func (t *trial) stopContainer(ctx context.Context, id string, grace int64) error {
	_, err := t.runtime.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// podDir is the log directory of a pod, which also holds the files that it mounts.
func (t *trial) podDir(p pod) string { return p.sandboxConfig(t.work).GetLogDirectory() }

// createQuietly records the time of CreateContainer and StartContainer in pods in which nothing else happens.
func (t *trial) createQuietly(ctx context.Context, containers []*runtimeapi.Container) error {
	for _, i := range t.rand.Perm(len(containers))[:min(t.opts.kills, len(containers))] {
		if err := wait.Sleep(ctx, time.Second); err != nil {
			return err
		}
		start := time.Now()
		id, err := t.startContainer(ctx, t.podOf(containers[i]), containers[i].GetPodSandboxId(), "second", 0)
		if err != nil {
			return err
		}
		t.sample.add(createStartSeconds, time.Since(start).Seconds())
		if err := t.stopContainer(ctx, id, 0); err != nil {
			return err
		}
		if _, err := t.runtime.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			return fmt.Errorf("remove container %s: %w", id, err)
		}
	}
	return nil
}

// replace waits for the runtime to see the victim's death, and starts the next container in its place.
func (t *trial) replace(ctx context.Context, victim *runtimeapi.Container) error {
	err := wait.Poll(ctx, 5*time.Millisecond, t.opts.limit, func() (bool, error) {
		status, err := t.runtime.Status(ctx, victim.GetId())
		return status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, err
	})
	if err != nil {
		return fmt.Errorf("wait for the death of container %s: %w", victim.GetId(), err)
	}
	_, err = t.startContainer(ctx, t.podOf(victim), victim.GetPodSandboxId(), "main", 1)
	return err
}

// podOf finds the pod of a container that startPod made.
func (t *trial) podOf(c *runtimeapi.Container) pod {
	for _, p := range t.pods {
		if p.UID == c.GetLabels()[cri.LabelPodUID] {
			return p
		}
	}
	return pod{} // the runtime then refuses the call, naming the sandbox
}

// stopAll records how long it takes to stop the containers, stop the sandboxes, and remove them.
func (t *trial) stopAll(ctx context.Context, parallel int) error {
	containers, err := t.runtime.Running(ctx, t.labels)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards latest
	latest := map[metric]float64{}
	start := time.Now()
	done := func(m metric) {
		mu.Lock()
		defer mu.Unlock()
		latest[m] = max(latest[m], time.Since(start).Seconds())
	}
	err = wait.Each(ctx, len(containers), parallel, func(i int) error {
		if err := t.stopContainer(ctx, containers[i].GetId(), graceSeconds); err != nil {
			return err
		}
		done(goneSeconds)
		id := containers[i].GetPodSandboxId()
		if _, err := t.runtime.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", id, err)
		}
		done(stoppedSeconds)
		if _, err := t.runtime.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("remove sandbox %s: %w", id, err)
		}
		done(removedSeconds)
		return nil
	})
	if err != nil {
		return err
	}
	for m, seconds := range latest {
		t.sample.add(m, seconds)
	}
	return nil
}
