// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// object has the fields of an object that these tests read.
type object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   struct {
		Name      string            `json:"name,omitempty"`
		Namespace string            `json:"namespace,omitempty"`
		UID       string            `json:"uid,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Data   map[string]string `json:"data,omitempty"`
	Spec   map[string]any    `json:"spec,omitempty"`
	Status map[string]any    `json:"status,omitempty"`
}

// named returns an object of this kind and name to create.
func named(kind, name string) *object {
	o := &object{APIVersion: "v1", Kind: kind}
	o.Metadata.Name = name
	return o
}

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	reviews    = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

func authenticatedUser(ctx context.Context, c *controlplane.Client) (any, error) {
	review := object{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}
	err := c.Do(ctx, http.MethodPost, reviews, &review, &review)
	info, _ := review.Status["userInfo"].(map[string]any)
	return info["username"], err
}

// One control plane for all tests that need a running one, because its start takes seconds. The order matters: the first
// test creates the node for the scheduler test, and the last test kills the API server.
func TestPlane(t *testing.T) {
	p := controlplane.Start(t, controlplane.Options{ControllerManager: true, Scheduler: true, Audit: true})
	for _, c := range []struct {
		name string
		test func(*testing.T, *controlplane.Plane)
	}{{"clients", testClients}, {"tokens", testTokens}, {"kubeconfig", testKubeconfig}, {"schedules", testSchedules}, {"requests", testRequests}, {"metrics", testMetrics}, {"restart", testRestart}} {
		t.Run(c.name, func(t *testing.T) { c.test(t, p) })
	}
}

// The API server authenticates clients by their certificates, and a node has the permissions of a node.
func testClients(t *testing.T, p *controlplane.Plane) {
	ctx := t.Context()
	require.NoError(t, p.Admin().CheckReady(ctx))
	config := named("ConfigMap", "twice")
	require.NoError(t, p.Admin().Do(ctx, http.MethodPost, configMaps, config, nil))
	err := p.Admin().Do(ctx, http.MethodPost, configMaps, config, nil)
	require.ErrorContains(t, err, `409 AlreadyExists configmaps "twice" already exists`)
	require.Equal(t, http.StatusConflict, controlplane.StatusCode(err))

	node, err := p.Client("system:node:n1", "system:nodes")
	require.NoError(t, err)
	who, err := authenticatedUser(ctx, node)
	require.NoError(t, err)
	require.Equal(t, "system:node:n1", who)
	require.NoError(t, node.Do(ctx, http.MethodPost, "/api/v1/nodes", named("Node", "n1"), nil))
	err = node.Do(ctx, http.MethodPost, "/api/v1/nodes", named("Node", "n2"), nil)
	require.Equal(t, http.StatusForbidden, controlplane.StatusCode(err), "%v", err)
}

func testTokens(t *testing.T, p *controlplane.Plane) {
	ctx := t.Context()
	_, err := authenticatedUser(ctx, p.TokenClient("no token"))
	require.Equal(t, http.StatusUnauthorized, controlplane.StatusCode(err), "%v", err)
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	require.NoError(t, p.Admin().Do(ctx, http.MethodPost, accounts, named("ServiceAccount", "app"), nil))
	request := &object{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest", Spec: map[string]any{"audiences": []string{}}}
	require.NoError(t, p.Admin().Do(ctx, http.MethodPost, accounts+"/app/token", request, request))
	token, _ := request.Status["token"].(string)
	who, err := authenticatedUser(ctx, p.TokenClient(token))
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:default:app", who)

	var account object
	require.NoError(t, p.Admin().Do(ctx, http.MethodGet, accounts+"/app", nil, &account))
	for expires, code := range map[time.Duration]int{time.Hour: 0, -time.Hour: http.StatusUnauthorized} {
		signed, err := p.ServiceAccountToken("default", "app", account.Metadata.UID, time.Now().Add(expires))
		require.NoError(t, err)
		_, err = authenticatedUser(ctx, p.TokenClient(signed))
		require.Equal(t, code, controlplane.StatusCode(err), "a token that expires in %v: %v", expires, err)
	}
}

// Other programs can read the kubeconfigs.
func testKubeconfig(t *testing.T, p *controlplane.Plane) {
	kubectl := filepath.Join(controlplane.RequirePrograms(t, controlplane.Kubectl), controlplane.Kubectl)
	config, err := p.Kubeconfig("somebody", "system:masters")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", config, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "somebody", string(out))
}

// With the controller manager a pod gets the default service account, and with the scheduler it gets a node.
func testSchedules(t *testing.T, p *controlplane.Plane) {
	ctx := t.Context()
	ready := map[string]any{"status": map[string]any{"capacity": map[string]string{"cpu": "2", "memory": "4Gi", "pods": "10"}}}
	require.NoError(t, p.Admin().Do(ctx, http.MethodPatch, "/api/v1/nodes/n1/status", ready, nil))
	pod := named("Pod", "scheduled")
	pod.Spec = map[string]any{
		"containers":  []any{map[string]any{"name": "main", "image": "nodeagent.test/busybox:1"}},
		"tolerations": []any{map[string]any{"operator": "Exists"}}, // the node is not ready
	}
	require.NoError(t, p.Admin().Do(ctx, http.MethodPost, "/api/v1/namespaces/default/pods", pod, nil))
	require.Eventually(t, func() bool {
		err := p.Admin().Do(ctx, http.MethodGet, "/api/v1/namespaces/default/pods/scheduled", nil, pod)
		return err == nil && pod.Spec["nodeName"] == "n1"
	}, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, "default", pod.Spec["serviceAccountName"])
}

// The API server serves the API of a metrics-server, and forwards the user of a request.
func testMetrics(t *testing.T, p *controlplane.Plane) {
	controlplane.RequirePrograms(t, controlplane.MetricsServer)
	ctx := t.Context()
	require.NoError(t, p.StartMetricsServer(ctx))
	const api = "/apis/metrics.k8s.io/v1beta1"
	var pods struct {
		Kind  string `json:"kind"`
		Items []any  `json:"items"`
	}
	require.Eventually(t, func() bool { return p.Admin().Do(ctx, http.MethodGet, api+"/pods", nil, &pods) == nil }, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, "PodMetricsList", pods.Kind)
	require.Empty(t, pods.Items, "the metrics-server has no node to scrape")

	nobody, err := p.Client("nobody")
	require.NoError(t, err)
	err = nobody.Do(ctx, http.MethodGet, api+"/pods", nil, nil)
	require.Equal(t, http.StatusForbidden, controlplane.StatusCode(err), "%v", err)
}

// After a restart of etcd and the API server all objects exist.
func testRestart(t *testing.T, p *controlplane.Plane) {
	ctx := t.Context()
	config := named("ConfigMap", "kept")
	config.Data = map[string]string{"color": "red"}
	require.NoError(t, p.Admin().Do(ctx, http.MethodPost, configMaps, config, nil))
	require.NoError(t, p.Kill(controlplane.APIServer))
	require.Error(t, p.Admin().CheckReady(ctx))
	require.NoError(t, p.Restart(ctx, controlplane.Etcd))
	require.NoError(t, p.Restart(ctx, controlplane.APIServer))
	var kept object
	require.NoError(t, p.Admin().Do(ctx, http.MethodGet, configMaps+"/kept", nil, &kept))
	require.Equal(t, config.Data, kept.Data)
	require.ErrorContains(t, p.Kill(controlplane.Kubectl), "no kubectl: it is asked for in Options")
}

// An unknown flag fails StartPlane at once, with the error text of the API server.
func TestStartPlaneReportsFailedProgram(t *testing.T) {
	programs := controlplane.RequirePrograms(t, controlplane.Etcd, controlplane.APIServer)
	began := time.Now()
	_, err := controlplane.StartPlane(t.Context(), programs, t.TempDir(), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "kube-apiserver ended")
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	require.Less(t, time.Since(began), controlplane.DefaultTimeout/2)
}

func ExampleImages() {
	images := controlplane.Images()
	fmt.Println(images[controlplane.Etcd])
	fmt.Println(images[controlplane.APIServer])
	// Output:
	// nodeagent.test/etcd:3.7.0-0
	// nodeagent.test/kube-apiserver:v1.37.1
}
