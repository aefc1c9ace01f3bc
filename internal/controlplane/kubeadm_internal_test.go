// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The versions in manifests and image names are those of the built programs.
func TestVersions(t *testing.T) {
	pinned, err := os.ReadFile("../../tools/cluster/go.mod")
	require.NoError(t, err)
	etcd, _, _ := strings.Cut(etcdTag, "-")
	require.Contains(t, string(pinned), "\tk8s.io/kubernetes "+Version+" ")
	require.Contains(t, string(pinned), "\tgo.etcd.io/etcd/server/v3 v"+etcd+" ")
}

// Only ports and host paths of a manifest are replaced.
func TestAdaptManifestReplacesPortsAndPaths(t *testing.T) {
	const manifest = `spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=https://10.0.0.1:2379
    - --cert-file=/etc/kubernetes/pki/etcd/server.crt
    - --snapshot-count=10000
    livenessProbe:
      httpGet:
        path: /livez
    ports:
    - containerPort: 2381
    volumeMounts:
    - mountPath: /var/lib/etcd
  volumes:
  - hostPath:
      path: /etc/kubernetes/pki/etcd
      type: DirectoryOrCreate
    name: etcd-certs
  - name: etcd-data
    hostPath:
      path: /var/lib/etcd
`
	const want = `spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=https://10.0.0.1:40001
    - --cert-file=/etc/kubernetes/pki/etcd/server.crt
    - --snapshot-count=10000
    livenessProbe:
      httpGet:
        path: /livez
    ports:
    - containerPort: 40002
    volumeMounts:
    - mountPath: /var/lib/etcd
  volumes:
  - hostPath:
      path: /a$1/etc/kubernetes/pki/etcd
      type: DirectoryOrCreate
    name: etcd-certs
  - name: etcd-data
    hostPath:
      path: /a$1/var/lib/etcd
`
	require.Equal(t, want, adaptManifest(manifest, "/a$1", map[string]string{"2379": "40001", "2381": "40002"}))
}

func TestFreePorts(t *testing.T) {
	ports, err := freePorts(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range ports {
		require.Positive(t, port)
		require.False(t, seen[port])
		seen[port] = true
	}
}
