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

// measureFloor measures bare CRI calls, with parallel pods at a time. Idle usage and replacements do not depend on parallel:
// they are measured only if all is set, once per number of pods.
func (t *trial) measureFloor(ctx context.Context, parallel int, all bool) {
	t.runtime.Trace = t.trace
	defer func() { t.runtime.Trace = nil }() // before the pods are removed
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

// startPod creates the sandbox and the container of a pod.
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
	if err := p.setUpVolumes(dir); err != nil {
		return err
	}
	sandbox, err := t.runtime.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandboxConfig(t.work)})
	if err != nil {
		return fmt.Errorf("run sandbox of %s: %w", p.Name, err)
	}
	_, err = t.startContainer(ctx, p, sandbox.GetPodSandboxId(), "main", 0)
	return err
}

// startContainer calls CreateContainer and StartContainer, and returns the container ID.
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

// stopContainer calls StopContainer.
func (t *trial) stopContainer(ctx context.Context, id string, grace int64) error {
	_, err := t.runtime.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// podDir is the log directory of a pod, which also holds the files that it mounts.
func (t *trial) podDir(p pod) string { return p.sandboxConfig(t.work).GetLogDirectory() }

// createQuietly records the time of CreateContainer and StartContainer while the pod is otherwise idle.
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

// replace waits until the runtime reports the exit of the victim, and starts its replacement.
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

// podOf returns the pod of a container that startPod created.
func (t *trial) podOf(c *runtimeapi.Container) pod {
	for _, p := range t.pods {
		if p.UID == c.GetLabels()[cri.LabelPodUID] {
			return p
		}
	}
	return pod{} // the runtime then rejects the call with an error that names the sandbox
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
