// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// parallel is the number of concurrent requests of the harness.
const parallel = 16

// load contains the objects of the cluster for a node: a namespace with the name of the node, and pods and services in it.
type load struct {
	client *controlplane.Client
	node   string
	image  string
}

// script is the command of the containers: it uses no CPU, and exits at once on SIGTERM.
const script = "trap 'exit 0' TERM; sleep 1000000 & wait"

func (l load) path(rest string) string { return "/api/v1/namespaces/" + l.node + rest }

// namespace creates the namespace, and waits until pods can be created in it.
func (l load) namespace(ctx context.Context, limit time.Duration) error {
	err := l.client.Do(ctx, http.MethodPost, "/api/v1/namespaces", object("Namespace", l.node, nil), nil)
	if err != nil {
		return err
	}
	return poll(ctx, limit, func() error {
		return errors.Join(l.client.Do(ctx, http.MethodGet, l.path("/serviceaccounts/default"), nil, nil),
			l.client.Do(ctx, http.MethodGet, l.path("/configmaps/kube-root-ca.crt"), nil, nil))
	})
}

// ready waits until the node is ready.
func (l load) ready(ctx context.Context, limit time.Duration, alive func() error) error {
	var dead error
	err := poll(ctx, limit, func() error {
		if dead = alive(); dead != nil {
			return nil
		}
		var node corev1.Node
		if err := l.client.Do(ctx, http.MethodGet, "/api/v1/nodes/"+l.node, nil, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready", l.node)
	})
	return errors.Join(err, dead)
}

// pods creates pods that are not bound to a node, and returns their names.
func (l load) pods(ctx context.Context, n int) (names []string, err error) {
	for i := range n {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	return names, each(ctx, n, func(i int) error {
		return l.client.Do(ctx, http.MethodPost, l.path("/pods"), object("Pod", names[i], map[string]any{
			"terminationGracePeriodSeconds": 5,
			"tolerations":                   []any{map[string]any{"operator": "Exists"}},
			"containers": []any{map[string]any{
				"name": "main", "image": l.image, "command": []string{"/bin/sh", "-c", script},
				"resources": map[string]any{"requests": map[string]string{"cpu": "1m"}},
			}},
		}), nil)
	})
}

// bind binds all pods to the node concurrently. It returns the time just before each binding.
func (l load) bind(ctx context.Context, names []string) (map[string]time.Time, error) {
	var mu sync.Mutex // guards at
	at := map[string]time.Time{}
	return at, each(ctx, len(names), func(i int) error {
		binding := object("Binding", names[i], nil)
		binding["target"] = map[string]string{"kind": "Node", "name": l.node}
		mu.Lock()
		at[names[i]] = time.Now()
		mu.Unlock()
		return l.client.Do(ctx, http.MethodPost, l.path("/pods/"+names[i]+"/binding"), binding, nil)
	})
}

// services creates services with one address each.
func (l load) services(ctx context.Context, n int) error {
	return each(ctx, n, func(i int) error {
		return l.client.Do(ctx, http.MethodPost, l.path("/services"), object("Service", fmt.Sprintf("s%d", i), map[string]any{
			"selector": map[string]string{"app": fmt.Sprintf("a%d", i)}, "ports": []any{map[string]any{"name": "http", "port": 80}},
		}), nil)
	})
}

func (l load) deletePods(ctx context.Context) error {
	return l.client.Do(ctx, http.MethodDelete, l.path("/pods"), nil, nil)
}

// cleanUp deletes services, namespace and node. The controller manager deletes remaining objects of the namespace. Services are
// deleted one by one, because one request for ten thousand exceeds its time limit.
func (l load) cleanUp(ctx context.Context, services int) error {
	gone := each(ctx, services, func(i int) error {
		return notFound(l.client.Do(ctx, http.MethodDelete, l.path(fmt.Sprintf("/services/s%d", i)), nil, nil))
	})
	return errors.Join(gone,
		l.client.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+l.node, nil, nil),
		notFound(l.client.Do(ctx, http.MethodDelete, "/api/v1/nodes/"+l.node, nil, nil)))
}

// notFound returns nil if err means that the object does not exist, else err.
func notFound(err error) error {
	if controlplane.StatusCode(err) == http.StatusNotFound {
		return nil
	}
	return err
}

func object(kind, name string, spec map[string]any) map[string]any {
	o := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]string{"name": name}}
	if spec != nil {
		o["spec"] = spec
	}
	return o
}

// poll calls check until it succeeds, and returns its last error after limit.
func poll(ctx context.Context, limit time.Duration, check func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// each calls do for 0 to n-1, up to parallel at a time, and returns the errors. After an error it starts no more.
func each(ctx context.Context, n int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, parallel)
	var workers sync.WaitGroup
	for w := range errs {
		workers.Go(func() {
			for ctx.Err() == nil && !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[w] = do(i); errs[w] != nil {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}
