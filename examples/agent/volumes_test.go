// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// volumesPod is a pod with every kind of volume that needs only the node, with a user and a group.
const volumesPod = `apiVersion: v1
kind: Pod
metadata: {name: volumes, labels: {app: shop}}
spec:
  terminationGracePeriodSeconds: 2
  securityContext: {fsGroup: 4321, runAsUser: 1234, runAsGroup: 1234}
  volumes:
    - {name: disk, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory, sizeLimit: 2Mi}}
    - {name: host, hostPath: {path: %s, type: Directory}}
    - {name: config, configMap: {name: app}}
    - {name: key, secret: {secretName: key, defaultMode: 0440}}
    - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
    - name: all
      projected:
        sources:
          - {configMap: {name: app, items: [{key: color, path: c}]}}
          - {secret: {name: key}}
          - {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  initContainers:
    - name: prepare
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "echo from init > /disk/sub/dir/file"]
      volumeMounts: [{name: disk, mountPath: /disk/sub/dir, subPath: sub/dir}]
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, %q]
      volumeMounts:
        - {name: disk, mountPath: /disk}
        - {name: disk, mountPath: /sub, subPath: sub/dir, readOnly: true}
        - {name: memory, mountPath: /memory}
        - {name: host, mountPath: /host}
        - {name: config, mountPath: /config}
        - {name: key, mountPath: /key}
        - {name: info, mountPath: /info}
        - {name: all, mountPath: /all}
`

// volumesScript logs the content of the volumes once, and then each new color.
const volumesScript = `echo disk $(cat /disk/sub/dir/file) sub $(cat /sub/file); touch /sub/x || echo read-only
echo host $(cat /host/file); echo memory $(df -k /memory | tail -1 | awk '{print $2}'); echo written > /memory/file && cat /memory/file
echo group $(stat -c %g /disk) $(stat -c %g /memory) $(stat -L -c '%g %a' /key/password); touch /config/x || echo no writes
echo key $(cat /key/password); echo info $(cat /info/labels); echo all $(cat /all/c) $(cat /all/password) $(cat /all/name)
trap 'exit 0' TERM; last=; while :; do now=$(cat /config/color); [ "$now" = "$last" ] || echo color $now; last=$now; sleep 0.1; done`

const configMapYAML = `apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: default}
data: {color: %s}
`

// A pod has the content of its volumes and sees an updated config map, also after its agent was killed. Nothing remains
// mounted after its removal.
func TestIntegrationVolumes(t *testing.T) {
	n := newNode(t)
	host := t.TempDir()
	require.NoError(t, os.Chmod(host, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(host, "file"), []byte("of the host"), 0o644))
	n.objects.Write("default/configmaps/app.yaml", fmt.Sprintf(configMapYAML, "red"))
	n.objects.Write("default/secrets/key.yaml", strings.Replace(secretYAML, "name: db", "name: key", 1))
	n.manifests.Write("volumes.yaml", fmt.Sprintf(volumesPod, host, volumesScript))
	a := n.start(nil)
	n.awaitLog("volumes-n1", "main",
		"disk from init sub from init", "read-only", "host of the host", "memory 2048", "written", "group 4321 4321 4321 440", "no writes",
		"key hunter2", `info app="shop"`, "all red hunter2 volumes-n1", "color red")
	n.objects.Write("default/configmaps/app.yaml", fmt.Sprintf(configMapYAML, "green"))
	n.awaitLog("volumes-n1", "main", "color green")
	before, _ := n.containers("volumes-n1")

	a.Kill()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=volumes-n1 phase=Running")
	n.objects.Write("default/configmaps/app.yaml", fmt.Sprintf(configMapYAML, "blue"))
	n.awaitLog("volumes-n1", "main", "color blue")
	after, _ := n.containers("volumes-n1")
	require.Equal(t, before, after)

	n.manifests.Remove("volumes.yaml")
	n.awaitNoLeftovers(timeout)
	exetest.Eventually(t, timeout, func() error {
		left, err := filepath.Glob(filepath.Join(n.state, "pods", "[^.]*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("remaining directories: %s", left)
		}
		return err
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), n.state)
	require.FileExists(t, filepath.Join(host, "file"))
	a.Terminate(timeout)
}

// A pod with a missing config map has an event, and starts once the config map exists.
func TestIntegrationMissingConfigMap(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("late.yaml", strings.Replace(podYAML("late", "cat /config/color; "+sleeper, "      volumeMounts: [{name: config, mountPath: /config}]\n"),
		"spec:", "spec:\n  volumes: [{name: config, configMap: {name: app}}]", 1))
	a := n.start(nil)
	a.AwaitLine(timeout, "FailedMount", `configmap \"app\" not found`)
	a.AwaitLine(timeout, "Unable to attach or mount volumes")
	n.objects.Write("default/configmaps/app.yaml", fmt.Sprintf(configMapYAML, "red"))
	n.awaitRunning(timeout, "late-n1")
	n.drain(a)
}
