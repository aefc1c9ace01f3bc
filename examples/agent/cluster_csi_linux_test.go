// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// The CSI drivers of the cluster. Volumes of loopName need no attachment; volumes of diskName do.
const (
	loopName = "loop.csi.example"
	diskName = "disk.csi.example"
)

// clusterDrivers has the drivers and the provisioned volumes of a StatefulSet of one pod.
const clusterDrivers = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: loop.csi.example}
spec: {podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Ephemeral, Persistent]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.csi.example}
spec: {attachRequired: true, fsGroupPolicy: None}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: loop}
provisioner: loop.csi.example
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk}
provisioner: disk.csi.example
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-data}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: loop
  claimRef: {namespace: default, name: data-db-0}
  csi: {driver: loop.csi.example, volumeHandle: data, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-raw}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: loop
  volumeMode: Block
  claimRef: {namespace: default, name: raw}
  csi: {driver: loop.csi.example, volumeHandle: raw}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOnce], storageClassName: loop, volumeMode: Block, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-fixed}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: disk
  claimRef: {namespace: default, name: fixed}
  csi: {driver: disk.csi.example, volumeHandle: fixed, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: fixed}
spec: {accessModes: [ReadWriteOnce], storageClassName: disk, resources: {requests: {storage: 16Mi}}}
`

// database is a StatefulSet whose pod has a claim of its own, mounted also by subPath, a block device, and a read-only
// claim.
const database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {fsGroup: 4321}
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command:
        - sh
        - -c
        - |
          trap exit TERM
          echo found $(cat /data/file) and $(cat /part/file)
          echo kept > /data/file; echo beside > /part/file
          echo group $(stat -c %g /data) part $(cat /data/part/file)
          touch /fixed/file 2>/dev/null || echo fixed is read-only
          while :; do sleep 0.1; done
        volumeDevices: [{name: raw, devicePath: /dev/raw}]
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: data, mountPath: /part, subPath: part}
        - {name: fixed, mountPath: /fixed}
      volumes:
      - {name: fixed, persistentVolumeClaim: {claimName: fixed, readOnly: true}}
      - {name: raw, persistentVolumeClaim: {claimName: raw}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: loop, resources: {requests: {storage: 16Mi}}}
`

// csiMember is a node of a cluster with CSI drivers.
type csiMember struct {
	*member
	csi *csiNode
}

// newCSIMember starts a control plane and an agent, and creates the volumes of both drivers.
func newCSIMember(t *testing.T, config map[string]any) *csiMember {
	needCluster(t)
	n := newCSINode(t)
	config["nodeIPs"] = []string{n.lab.Subnet().Addr().Next().String()}
	m := &csiMember{n.joinCluster(t, config, true), n}
	makeDisk(t, n.data, "data", 16<<20)
	makeDisk(t, n.data, "raw", 16<<20)
	makeDisk(t, m.diskDir(), "fixed", 16<<20)
	m.apply(clusterDrivers)
	return m
}

// diskDir is the directory of the volumes that must be attached.
func (m *csiMember) diskDir() string { return m.csi.data + "-disks" }

// startDrivers starts both drivers.
func (m *csiMember) startDrivers() []*exetest.Process {
	registry := filepath.Join(m.state, "plugins_registry")
	return []*exetest.Process{m.csi.startDriverAs(loopName, m.csi.data, registry), m.csi.startDriverAs(diskName, m.diskDir(), registry)}
}

// awaitVolumesInUse waits until volumesInUse in the status of the node is want.
func (m *csiMember) awaitVolumesInUse(want string) {
	m.t.Helper()
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesInUse[*]}")(want)
}

// attachDisk waits for the VolumeAttachment, and marks it as attached like the external attacher of a driver.
func (m *csiMember) attachDisk() {
	m.t.Helper()
	var list storagev1.VolumeAttachmentList
	const path = "/apis/storage.k8s.io/v1/volumeattachments"
	exetest.Eventually(m.t, clusterTimeout, func() error {
		err := m.Admin().Do(within(m.t, timeout), http.MethodGet, path, nil, &list)
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d attachments, not 1", len(list.Items))
		}
		return err
	})
	a := list.Items[0]
	require.Equal(m.t, "n1", a.Spec.NodeName)
	require.Equal(m.t, diskName, a.Spec.Attacher)
	m.sendRequest(http.MethodPatch, path+"/"+a.Name+"/status", map[string]any{"status": map[string]any{"attached": true, "attachmentMetadata": map[string]string{"lun": "7"}}})
}

// A StatefulSet has volumes of a CSI driver without attachment and of one with attachment. fsGroup, subPath and readOnly
// apply. The volumes survive the agent and the drivers, grow while they are mounted, and are detached in the end. The next
// pod finds the data.
func TestClusterCSI(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.apply(database)
	m.agent.AwaitLine(clusterTimeout, "FailedMount", "CSI driver", "not found")
	drivers := m.startDrivers()
	const attached = "kubernetes.io/csi/disk.csi.example^fixed"
	m.awaitVolumesInUse(attached) // before anything is mounted
	require.Empty(t, m.mountsOf("fixed"))
	m.attachDisk()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase}")("Running")
	m.awaitLog("db-0", "main", "found and", "group 4321 part beside", "fixed is read-only")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesAttached[*].name}")(attached)

	// The test expands the block device only: the expansion of a mounted file system needs CAP_SYS_RESOURCE.
	makeDisk(t, m.csi.data, "raw", 48<<20) // like the external resizer
	m.do("patch", "pvc", "raw", "--patch", `{"spec":{"resources":{"requests":{"storage":"48Mi"}}}}`)
	m.do("patch", "pv", "pv-raw", "--patch", `{"spec":{"capacity":{"storage":"48Mi"}}}`)
	before, _ := m.containers("db-0")
	for _, d := range drivers {
		d.Kill()
	}
	m.agent.Kill()
	drivers = m.startDrivers()
	m.restart()
	m.eventually(2*timeout, "get", "pvc", "raw", "-o", "jsonpath={.status.capacity.storage}")("48Mi")
	require.Equal(t, fmt.Sprint(48<<20), m.do("exec", "db-0", "--", "sh", "-c", "cat /dev/raw | wc -c"))
	const size = `kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="raw"} 5.0331648e+07`
	require.Eventually(t, func() bool {
		return strings.Contains(m.do("get", "--raw", "/api/v1/nodes/n1/proxy/metrics"), size)
	}, 2*time.Minute, time.Second, "the metric has the new size, which is measured once a minute")
	after, _ := m.containers("db-0")
	require.Equal(t, before, after, "no container is restarted")
	require.Contains(t, m.do("get", "events", "-o", "jsonpath={.items[*].reason}"), "FileSystemResizeSuccessful")

	m.do("scale", "statefulset/db", "--replicas=0")
	m.eventually(2*timeout, "get", "pods", "-o", "name")("")
	m.csi.awaitNoVolumes()
	m.awaitVolumesInUse("")
	m.eventually(clusterTimeout, "get", "volumeattachments", "-o", "name")("")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesAttached}")("")
	m.do("scale", "statefulset/db", "--replicas=1")
	m.attachDisk()
	m.awaitLog("db-0", "main", "found kept and beside")
	m.do("delete", "statefulset", "db", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
	m.csi.awaitNoVolumes()
	for _, d := range drivers {
		d.Terminate(timeout)
	}
	m.eventually(timeout, "get", "csinode", "n1", "-o", "jsonpath={.spec.drivers[*].name}")("")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.metadata.annotations.csi\\.volume\\.kubernetes\\.io/nodeid}")("")
}

// While the API server is unavailable, a restarted agent restarts containers with their volumes. It does so if the volumes
// are still mounted, with or without their drivers, and with keepObjects also after a reboot. It reports everything once the
// API server is available.
func TestClusterCSIWithoutAPIServer(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.apply(strings.Replace(database, "      terminationGracePeriodSeconds", "      automountServiceAccountToken: false\n      terminationGracePeriodSeconds", 1))
	drivers := m.startDrivers()
	m.attachDisk()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase}")("Running")
	m.awaitStored("db-0")

	for _, d := range drivers {
		d.Kill()
	}
	m.restartOffline(m.proxy.SetUnavailable)
	m.killAndAwaitRestart("db-0")
	drivers = m.startDrivers()
	for _, name := range []string{loopName, diskName} {
		m.agent.AwaitLine(timeout, "CSI driver is written to Node and CSINode later", "driver="+name)
	}
	m.killAndAwaitRestart("db-0")
	m.proxy.SetUnavailable(false)
	m.awaitNode()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")("Running 2")
	for _, name := range []string{loopName, diskName} {
		m.eventually(timeout, "get", "csinode", "n1", "-o", `jsonpath={.spec.drivers[?(@.name=="`+name+`")].nodeID}`)("node")
	}

	m.config["keepObjects"] = true
	m.restart()
	m.awaitObjectFiles(9) // 3 claims and their volumes, 2 drivers, one attachment
	sandbox := m.sandboxOf("db-0")
	m.agent.Kill()
	m.proxy.SetUnavailable(true)
	for _, d := range drivers {
		d.Kill()
	}
	old, err := m.runningContainer("db-0")
	require.NoError(t, err)
	m.killContainer(old)
	m.simulateReboot()
	m.startDrivers()
	m.agent = m.start(m.config)
	exetest.Eventually(t, clusterTimeout, func() error {
		c, err := m.runningContainer("db-0")
		if err == nil && c.ID == old.ID {
			err = errors.New("the container is not restarted")
		}
		return err
	})
	require.NotEmpty(t, m.csi.mounts())
	m.awaitLog("db-0", "main", "found kept and beside")
	m.proxy.SetUnavailable(false)
	m.awaitNode()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")("Running 3")
	require.Equal(t, sandbox, m.sandboxOf("db-0"))

	m.do("delete", "statefulset", "db", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
	m.csi.awaitNoVolumes()
	m.awaitVolumesInUse("")
	m.eventually(clusterTimeout, "get", "volumeattachments", "-o", "name")("")
	m.awaitObjectFiles(0)
}

// simulateReboot unmounts all volumes and detaches their devices, as a reboot does.
func (m *csiMember) simulateReboot() {
	m.t.Helper()
	m.detachLoops(m.state) // loop devices of the agent, which keep the block devices open
	m.csi.unmountAll()
	m.detachLoops(m.csi.data)
	require.Empty(m.t, m.csi.mounts())
}

// detachLoops detaches the loop devices of files whose paths begin with prefix.
func (m *csiMember) detachLoops(prefix string) {
	m.t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(m.t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), prefix) {
			out, err := exec.Command("losetup", "-d", "/dev/"+strings.Split(file, "/")[3]).CombinedOutput()
			require.NoError(m.t, err, "%s", out)
		}
	}
}

// mountsOf returns the mount points below the state of the agent whose paths contain name.
func (m *csiMember) mountsOf(name string) (points []string) {
	for _, point := range m.csi.mounts() {
		if strings.Contains(point, name) {
			points = append(points, point)
		}
	}
	return points
}

// The Node and CSINode objects have the same fields of the CSI drivers as those of kubelet 1.37.1.
func TestClusterCSINodeBesideKubelet(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.startDrivers()
	root := m.startPeer(m.lab.Subnet().Addr().Next().String(), nil)
	registry := filepath.Join(root, "plugins_registry")
	exetest.Eventually(t, clusterTimeout, func() error {
		_, err := os.Stat(registry)
		return err
	})
	m.csi.startDriverAs(loopName, filepath.Join(t.TempDir(), "loop"), registry)
	m.csi.startDriverAs(diskName, filepath.Join(t.TempDir(), "disk"), registry)

	exetest.Eventually(t, clusterTimeout, func() error {
		var objects [2]map[string]string
		for i, name := range []string{"n1", "n2"} {
			text, err := m.try("", "get", "csinode", name, "-o", "json")
			if err != nil {
				return err
			}
			ids, err := m.try("", "get", "node", name, "-o", `jsonpath={.metadata.annotations.csi\.volume\.kubernetes\.io/nodeid}`)
			if err != nil {
				return err
			}
			var o map[string]any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(text, `"n2"`, `"n1"`)), &o); err != nil {
				return err
			}
			objects[i] = map[string]string{"nodeid": ids}
			flatten("", o, objects[i])
		}
		differ := map[string]string{}
		for path := range union(objects[0], objects[1]) {
			if ours, theirs := objects[0][path], objects[1][path]; ours != theirs {
				differ[path] = fmt.Sprintf("agent: %q, kubelet: %q", ours, theirs)
			}
		}
		if n := len(objects[1]); n < 12 {
			return fmt.Errorf("the kubelet has %d fields: %v", n, objects[1])
		}
		return checkDifferences("csinode.txt", differ)
	})
}
