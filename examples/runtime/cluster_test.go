// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// clusterPod has the volumes that need an API server, including its service account token.
const clusterPod = `{
	"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
	"spec": {
		"nodeName": "node", "terminationGracePeriodSeconds": 1,
		"volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "secret", "secret": {"secretName": "key"}}],
		"containers": [{
			"name": "web", "image": "none",
			"command": ["sh", "-c", "echo started with $(cat /nodeagent-config/color) and $MODE; exec sleep 1000"],
			"env": [{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}}],
			"readinessProbe": {"exec": {"command": ["cat", "/nodeagent-config/color"]}, "periodSeconds": 1},
			"volumeMounts": [
				{"name": "config", "mountPath": "/nodeagent-config"},
				{"name": "secret", "mountPath": "/etc/nodeagent-key", "readOnly": true}
			]
		}]
	}
}`

// A kubelet of a real cluster runs a pod with a config map, a secret and a token as plain processes.
func TestIntegrationKubeletInCluster(t *testing.T) {
	m := newMachine(t)
	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	ctx, admin := t.Context(), plane.Admin()
	const address = "10.216.0.1" // the kubelet rejects a node address on the loopback
	require.NoError(t, exec.CommandContext(ctx, "ip", "address", "add", address+"/32", "dev", "lo").Run())
	put := func(path, object string) {
		t.Helper()
		require.NoError(t, admin.Do(ctx, http.MethodPost, "/api/v1/namespaces/default/"+path, json.RawMessage(object), nil))
	}
	put("configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"color":"red","mode":"fast"}}`)
	put("secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key"},"stringData":{"key":"hidden"}}`)
	kubeconfig, err := plane.Kubeconfig("system:node:node", "system:nodes")
	require.NoError(t, err)
	m.start()
	k := startKubelet(t, m.kubelet, m.socket, "", "--kubeconfig="+kubeconfig, "--node-ip="+address)
	exetest.Eventually(t, time.Minute, func() error { return admin.Do(ctx, http.MethodGet, "/api/v1/nodes/node", nil, nil) })
	put("pods", clusterPod)
	const path = "/api/v1/namespaces/default/pods/web"
	var pod corev1.Pod
	exetest.Eventually(t, time.Minute, func() error {
		if err := admin.Do(ctx, http.MethodGet, path, nil, &pod); err != nil {
			return err
		}
		if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].Ready {
			return nil
		}
		return fmt.Errorf("pod is not ready: %+v", pod.Status)
	})
	exetest.Eventually(t, time.Minute, func() error { // a container without probes is ready before its first line
		log, err := k.request(http.MethodGet, "/containerLogs/default/web/web")
		if err == nil && log != "started with red and fast\n" {
			err = fmt.Errorf("the log is %q", log)
		}
		return err
	})
	require.Equal(t, "hidden", k.exec("web", "cat /etc/nodeagent-key/key"))
	require.Contains(t, k.exec("web", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"), "eyJ")
	require.Equal(t, "default", k.exec("web", "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace"))

	change := json.RawMessage(`{"data":{"color":"blue"}}`)
	require.NoError(t, admin.Do(ctx, http.MethodPatch, "/api/v1/namespaces/default/configmaps/settings", change, nil))
	exetest.Eventually(t, time.Minute, func() error {
		if color := k.exec("web", "cat /nodeagent-config/color"); color != "blue" {
			return fmt.Errorf("the container sees color %q", color)
		}
		return nil
	})
	require.NoError(t, admin.Do(ctx, http.MethodDelete, path, nil, nil))
	exetest.Eventually(t, time.Minute, func() error {
		if err := admin.Do(ctx, http.MethodGet, path, nil, nil); controlplane.StatusCode(err) != http.StatusNotFound {
			return fmt.Errorf("the pod is not deleted: %w", err)
		}
		return nil
	})
	m.awaitEmpty()
}
