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

// The drivers of a cluster: volumes of the first need not be attached, those of the other have to be.
const (
	loopName = "loop.csi.example"
	diskName = "disk.csi.example"
)

// clusterDrivers is what the cluster knows of them, and the volumes that somebody has made: as for a StatefulSet of one pod.
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

// database is a StatefulSet whose pod has a claim of its own, also a part of it, a block device, and a claim that it only reads.
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

// newCSIMember starts a control plane, an agent and both drivers.
func newCSIMember(t *testing.T, config map[string]any) *csiMember {
	needCluster(t)
	n := newCSINode(t)
	config["nodeIPs"] = []string{n.lab.Subnet().Addr().Next().String()}
	m := &csiMember{n.enter(t, config, true), n}
	makeDisk(t, n.data, "data", 16<<20)
	makeDisk(t, n.data, "raw", 16<<20)
	makeDisk(t, m.disks(), "fixed", 16<<20)
	m.apply(clusterDrivers)
	return m
}

// disks is where the volumes are that have to be attached.
func (m *csiMember) disks() string { return m.csi.data + "-disks" }

// driveAll starts both drivers.
func (m *csiMember) driveAll() []*exetest.Process {
	registry := filepath.Join(m.state, "plugins_registry")
	return []*exetest.Process{m.csi.driveAs(loopName, m.csi.data, registry), m.csi.driveAs(diskName, m.disks(), registry)}
}

// inUse waits until the status of the node has these volumes in use.
func (m *csiMember) inUse(want string) {
	m.t.Helper()
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesInUse[*]}")(want)
}

// attach does what the external attacher of a driver does, once the cluster wants a volume to be attached.
func (m *csiMember) attach() {
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
	m.request(http.MethodPatch, path+"/"+a.Name+"/status", map[string]any{"status": map[string]any{"attached": true, "attachmentMetadata": map[string]string{"lun": "7"}}})
}

// A StatefulSet has volumes of CSI drivers: of one that needs no attachment and of one that waits for it. They have the group of the pod,
// parts and no right to write as the pod says, outlive agent and drivers, grow while they are used, and are given back; what was written
// is there for the next pod.
func TestClusterCSI(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.apply(database)
	m.agent.AwaitLine(clusterTimeout, "FailedMount", "CSI driver", "not found")
	drivers := m.driveAll()
	const attached = "kubernetes.io/csi/disk.csi.example^fixed"
	m.inUse(attached) // which it is before anything is mounted
	require.Empty(t, m.mountsOf("fixed"))
	m.attach()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase}")("Running")
	m.awaitLog("db-0", "main", "found and", "group 4321 part beside", "fixed is read-only")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesAttached[*].name}")(attached)

	// The block device grows: to let a mounted file system grow takes CAP_SYS_RESOURCE.
	makeDisk(t, m.csi.data, "raw", 48<<20) // as the resizer of the driver does
	m.do("patch", "pvc", "raw", "--patch", `{"spec":{"resources":{"requests":{"storage":"48Mi"}}}}`)
	m.do("patch", "pv", "pv-raw", "--patch", `{"spec":{"capacity":{"storage":"48Mi"}}}`)
	before, _ := m.containers("db-0")
	for _, d := range drivers {
		d.Kill()
	}
	m.agent.Kill()
	drivers = m.driveAll()
	m.restart()
	m.eventually(2*timeout, "get", "pvc", "raw", "-o", "jsonpath={.status.capacity.storage}")("48Mi")
	require.Equal(t, fmt.Sprint(48<<20), m.do("exec", "db-0", "--", "sh", "-c", "cat /dev/raw | wc -c"))
	const size = `kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="raw"} 5.0331648e+07`
	require.Eventually(t, func() bool {
		return strings.Contains(m.do("get", "--raw", "/api/v1/nodes/n1/proxy/metrics"), size)
	}, 2*time.Minute, time.Second, "its driver says how large it is, once a minute")
	after, _ := m.containers("db-0")
	require.Equal(t, before, after, "nothing was started again")
	require.Contains(t, m.do("get", "events", "-o", "jsonpath={.items[*].reason}"), "FileSystemResizeSuccessful")

	m.do("scale", "statefulset/db", "--replicas=0")
	m.eventually(2*timeout, "get", "pods", "-o", "name")("")
	m.csi.leftNothing()
	m.inUse("")
	m.eventually(clusterTimeout, "get", "volumeattachments", "-o", "name")("")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesAttached}")("")
	m.do("scale", "statefulset/db", "--replicas=1")
	m.attach()
	m.awaitLog("db-0", "main", "found kept and beside")
	m.do("delete", "statefulset", "db", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNothing(timeout)
	m.csi.leftNothing()
	for _, d := range drivers {
		d.Terminate(timeout)
	}
	m.eventually(timeout, "get", "csinode", "n1", "-o", "jsonpath={.spec.drivers[*].name}")("")
	m.eventually(timeout, "get", "node", "n1", "-o", "jsonpath={.metadata.annotations.csi\\.volume\\.kubernetes\\.io/nodeid}")("")
}

// An agent that is started while the API server is away starts containers again with the volumes that they had: as long as these are
// mounted always, with or without their drivers, and with keepObjects on a machine that was started again as well. When the API server is
// there all is as ever.
func TestClusterCSIAway(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.apply(strings.Replace(database, "      terminationGracePeriodSeconds", "      automountServiceAccountToken: false\n      terminationGracePeriodSeconds", 1))
	drivers := m.driveAll()
	m.attach()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase}")("Running")
	m.stored("db-0")

	for _, d := range drivers {
		d.Kill()
	}
	m.boot(m.proxy.SetUnavailable)
	m.dies("db-0")
	drivers = m.driveAll()
	for _, name := range []string{loopName, diskName} {
		m.agent.AwaitLine(timeout, "the cluster is told of it later", "driver="+name)
	}
	m.dies("db-0")
	m.proxy.SetUnavailable(false)
	m.awaitNode()
	m.eventually(2*timeout, "get", "pod", "db-0", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")("Running 2")
	for _, name := range []string{loopName, diskName} {
		m.eventually(timeout, "get", "csinode", "n1", "-o", `jsonpath={.spec.drivers[?(@.name=="`+name+`")].nodeID}`)("node")
	}

	m.config["keepObjects"] = true
	m.restart()
	m.awaitKept(9) // 3 claims and their volumes, 2 drivers, the attachment
	sandbox := m.sandboxOf("db-0")
	m.agent.Kill()
	m.proxy.SetUnavailable(true)
	for _, d := range drivers {
		d.Kill()
	}
	old, err := m.running("db-0")
	require.NoError(t, err)
	m.kill(old)
	m.forget()
	m.driveAll()
	m.agent = m.start(m.config)
	exetest.Eventually(t, clusterTimeout, func() error {
		c, err := m.running("db-0")
		if err == nil && c.ID == old.ID {
			err = errors.New("it has not been started again")
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
	m.awaitNothing(timeout)
	m.csi.leftNothing()
	m.inUse("")
	m.eventually(clusterTimeout, "get", "volumeattachments", "-o", "name")("")
	m.awaitKept(0)
}

// forget unmounts and detaches what a machine does not have any more when it is started again.
func (m *csiMember) forget() {
	m.t.Helper()
	m.detachLoops(m.state) // which keep the block devices open
	m.csi.unmount()
	m.detachLoops(m.csi.data)
	require.Empty(m.t, m.csi.mounts())
}

// detachLoops detaches the loop devices of files whose paths begin with a prefix.
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

// mountsOf returns what is mounted below the state of the agent with a name in its path.
func (m *csiMember) mountsOf(name string) (points []string) {
	for _, point := range m.csi.mounts() {
		if strings.Contains(point, name) {
			points = append(points, point)
		}
	}
	return points
}

// What drivers say of a node is in Node and CSINode objects as kubelet 1.37.1 puts it there.
func TestClusterCSINodeBesideKubelet(t *testing.T) {
	m := newCSIMember(t, map[string]any{})
	m.driveAll()
	root := m.peer(m.lab.Subnet().Addr().Next().String(), nil)
	registry := filepath.Join(root, "plugins_registry")
	exetest.Eventually(t, clusterTimeout, func() error {
		_, err := os.Stat(registry)
		return err
	})
	m.csi.driveAs(loopName, filepath.Join(t.TempDir(), "loop"), registry)
	m.csi.driveAs(diskName, filepath.Join(t.TempDir(), "disk"), registry)
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
				differ[path] = fmt.Sprintf("the agent has %q, the kubelet %q", ours, theirs)
			}
		}
		if n := len(objects[1]); n < 12 {
			return fmt.Errorf("the kubelet has %d fields: %v", n, objects[1])
		}
		return checkDifferences("csinode.txt", differ)
	})
}
