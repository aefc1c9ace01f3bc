// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

const (
	nodeName = "api"
	mainPod  = "main" // pod that receives the requests
)

// subject is an agent to measure: its name, and how to start its process with or without its server.
type subject struct {
	name  string
	start func(t *trial, server bool) (*process.Process, error)
}

// trial is the measurement of one agent.
type trial struct {
	*bench
	*process.Process
	subject        subject
	dir, manifests string
	port           int
	served         served
	bare           bare
	atRest         float64 // CPU time at rest, in seconds per second
	figures, floor figures
}

// startAgent starts examples/agent.
func (t *trial) startAgent(server bool) (*process.Process, error) {
	return process.StartAgent(t.agent, t.dir, map[string]any{
		"nodeName": nodeName, "nodeIPs": []string{"127.0.0.1"}, "containerRuntimeEndpoint": t.endpoint, "staticPodPath": t.manifests,
		"cgroupRoot": t.cgroupRoot, "rootDir": filepath.Join(t.dir, "state"), "podLogsDir": filepath.Join(t.dir, "logs"), "containerLogMaxSize": "1Ti",
		"maxPods": t.pods + 10, "logLevel": "WARN", "imageGCHighThresholdPercent": 100, // never remove images because of a full disk
		"enableServer": server, "address": "127.0.0.1", "port": t.port, "authorization": map[string]any{"mode": "AlwaysAllow"},
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}},
	})
}

// startKubelet starts a kubelet.
func (t *trial) startKubelet(server bool) (*process.Process, error) {
	return process.Start(t.kubelet, t.dir, map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": t.endpoint,
		"staticPodPath": t.manifests, "registerNode": false, "podLogsDir": filepath.Join(t.dir, "logs"), "containerLogMaxSize": "1Ti",
		"volumePluginDir": filepath.Join(t.dir, "plugins"), "maxPods": t.pods + 10, "podPidsLimit": -1,
		"enableServer": server, "address": "127.0.0.1", "port": t.port, "healthzPort": 0, "readOnlyPort": 0,
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"cgroupDriver":   "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "0%"},
	}, "--config={}", "--root-dir="+filepath.Join(t.dir, "root"), "--cert-dir="+filepath.Join(t.dir, "pki"), "--hostname-override="+nodeName, "--v=0")
}

// measure takes the figures of one agent and of the floor beside it, and cleans up afterwards.
func (b *bench) measure(ctx context.Context, s subject, repeat int) (err error) {
	t := &trial{bench: b, subject: s, figures: newFigures(s.name, repeat), floor: newFigures(floorName, repeat)}
	t.dir = filepath.Join(b.work, fmt.Sprint(s.name, repeat))
	t.manifests = filepath.Join(t.dir, "manifests")
	if err := os.MkdirAll(t.manifests, 0o755); err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true} // the certificate is self-signed
	defer transport.CloseIdleConnections()
	t.served.client = &http.Client{Transport: transport}
	defer func() {
		err = errors.Join(err, t.cleanUp(context.WithoutCancel(ctx)))
		b.all = append(b.all, t.floor, t.figures)
	}()
	for i := range b.pods {
		if err := t.manifest(fmt.Sprintf("p%d", i), false); err != nil {
			return err
		}
	}
	if err := t.manifest(mainPod, true); err != nil {
		return err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"start", t.start},
		{"rest", t.rest},
		{"log", t.logs},
		{"exec", t.execs},
		{"port-forward", t.forward},
		{"exec output", t.output},
		{"scrape", t.scrape},
		{"monitor", t.monitor},
		{"idle execs", t.idle},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, errors.Join(err, t.Alive()))
		}
	}
	resident, err := t.Resident()
	t.figures.add(lastMiB, resident)
	return err
}

// manifest writes a static pod that uses no CPU, and exits at once on SIGTERM.
func (t *trial) manifest(name string, onHost bool) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]string{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": 5, "hostNetwork": onHost,
			"containers": []any{map[string]any{
				"name": "main", "image": t.image, "imagePullPolicy": "IfNotPresent",
				"command":   []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"},
				"resources": map[string]any{"requests": map[string]string{"cpu": "1m"}},
			}},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.manifests, name+".json"), text, 0o644)
}

// start runs the pods, and then measures the memory of an agent that finds them at its start, without and with its server.
func (t *trial) start(ctx context.Context) error {
	for _, one := range []struct {
		server bool
		metric metric
	}{{false, ""}, {false, withoutMiB}, {true, withMiB}} {
		if err := t.restart(ctx, one.server); err != nil {
			return err
		}
		if one.metric == "" {
			continue
		}
		if err := wait.Sleep(ctx, t.settle); err != nil {
			return err
		}
		resident, err := t.Resident()
		if err != nil {
			return err
		}
		t.figures.add(one.metric, resident)
	}
	return nil
}

// restart restarts the agent, and waits until all pods run and it responds.
func (t *trial) restart(ctx context.Context, server bool) (err error) {
	if t.Process != nil {
		if err := t.Stop(t.grace); err != nil {
			return err
		}
	}
	if t.port, err = freePort(ctx); err != nil {
		return err
	}
	t.served.url = fmt.Sprintf("https://127.0.0.1:%d", t.port)
	if t.Process, err = t.subject.start(t, server); err != nil {
		return err
	}
	return t.poll(ctx, func() error {
		running, err := t.runtime.Running(ctx, nil)
		if err != nil || len(running) != t.pods+1 {
			return errors.Join(err, fmt.Errorf("%d of %d containers run", len(running), t.pods+1))
		}
		for _, c := range running {
			if c.GetLabels()["io.kubernetes.pod.name"] == mainPod+"-"+nodeName {
				t.bare = bare{t.runtime, c.GetId(), c.GetPodSandboxId(), ""}
			}
		}
		status, err := t.runtime.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: t.bare.container})
		if err != nil {
			return err
		}
		t.bare.file = status.GetStatus().GetLogPath()
		if !server {
			return nil
		}
		_, err = execTrue(ctx, t.served)
		return err
	})
}

// freePort returns an unused port.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// poll calls check until it succeeds. It returns the last error after the limit or when the agent has exited.
func (t *trial) poll(ctx context.Context, check func() error) error {
	for deadline := time.Now().Add(t.limit); ; {
		err := check()
		if err == nil {
			return nil
		}
		if dead := t.Alive(); dead != nil {
			return errors.Join(dead, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", t.limit, err)
		}
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// cleanUp makes the agent stop the pods, stops the agent, and removes remaining pods.
func (t *trial) cleanUp(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(t.manifests, "*.json"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	if t.Process != nil {
		if t.Alive() == nil {
			err = errors.Join(err, t.poll(ctx, func() error {
				running, err := t.runtime.Running(ctx, nil)
				if err == nil && len(running) > 0 {
					err = fmt.Errorf("%d containers still run", len(running))
				}
				return err
			}))
		}
		err = errors.Join(err, t.Stop(t.grace))
	}
	return errors.Join(err, t.runtime.RemovePods(ctx, nil))
}
