// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"strings"
)

// podKind is a kind of pod that stays on the node while its program changes.
type podKind struct {
	name    string
	count   int
	spec    string // YAML of the pod spec without common fields; NAME is the name of the pod
	objects string // YAML of the objects that each pod needs; NAME is the name of the pod
	static  bool   // the pods are manifests; other pods are objects of the API server
}

// Parts of containers in YAML.
const (
	image = `image: "nodeagent.test/busybox:1"`
	idle  = image + `, command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]` // waits for SIGTERM
	quick = image + `, command: ["true"]`
)

// podKinds returns the kinds of pods that keep their containers and their readiness. Each has a feature that a change of the agent can break. There
// are 30 pods.
func podKinds() []podKind {
	return []podKind{
		{name: "config", count: 4, spec: `
  containers:
  - {name: main, ` + idle + `, readinessProbe: {exec: {command: [test, -e, /etc/greeting/text]}, periodSeconds: 10, timeoutSeconds: 40},
     resources: {requests: {cpu: 5m, memory: 4Mi}, limits: {memory: 64Mi}},
     volumeMounts: [{name: greeting, mountPath: /etc/greeting}, {name: secret, mountPath: /etc/secret},
                    {name: greeting, mountPath: /etc/text, subPath: text}, {name: names, mountPath: /etc/names}]}
  volumes:
  - {name: greeting, configMap: {name: greeting}}
  - {name: secret, secret: {secretName: secret}}
  - {name: names, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
`},
		{name: "memory", count: 3, spec: `
  containers:
  - {name: main, ` + idle + `,
     volumeMounts: [{name: memory, mountPath: /memory}, {name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}]}
  volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}, {name: data, emptyDir: {}}]
`},
		{name: "steps", count: 3, spec: `
  initContainers: [{name: first, ` + quick + `}, {name: beside, restartPolicy: Always, ` + idle + `}, {name: second, ` + quick + `}]
  containers: [{name: main, ` + idle + `}]
`},
		{name: "startup", count: 3, spec: `
  containers:
  - {name: main, ` + image + `, command: [sh, -c, "[ -e /data/again ] || { touch /data/again; exit 1; }; touch /tmp/ok; trap exit TERM; while :; do sleep 1; done"],
     startupProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 3, timeoutSeconds: 40, failureThreshold: 30},
     livenessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 15, timeoutSeconds: 40},
     volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`},
		{name: "inline", count: 2, spec: `
  containers: [{name: main, ` + idle + `, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, csi: {driver: loop.csi.example, fsType: ext4, volumeAttributes: {size: "16777216"}}}]
`},
		{name: "claim", count: 3, spec: `
  securityContext: {fsGroup: 4321}
  containers: [{name: main, ` + idle + `, volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
`, objects: claimObjects("loop", "volumeMode: Filesystem", ", fsType: ext4")},
		{name: "attached", count: 2, spec: `
  containers: [{name: main, ` + idle + `, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
`, objects: claimObjects("disk", "volumeMode: Filesystem", ", fsType: ext4")},
		{name: "block", count: 1, spec: `
  containers: [{name: main, ` + idle + `, volumeDevices: [{name: data, devicePath: /dev/data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
`, objects: claimObjects("loop", "volumeMode: Block", "")},
		{name: "gadget", count: 2, spec: `
  containers: [{name: main, ` + idle + `, resources: {limits: {example.com/gadget: 1}}}]
`},
		{name: "sized", count: 1, spec: `
  containers: [{name: main, ` + idle + `, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, memory: 64Mi}}}]
`},
		{name: "hooks", count: 1, spec: `
  hostNetwork: true
  containers:
  - {name: main, ` + idle + `, lifecycle: {postStart: {exec: {command: [sh, -c, "echo started >>/tmp/hook"]}}, preStop: {exec: {command: ["true"]}}}}
`},
		{name: "chatty", count: 1, spec: `
  containers: [{name: main, ` + image + `, command: [sh, -c, "trap exit TERM; while :; do echo one of many lines which fill the log of this container; sleep 0.1; done"]}]
`},
		{name: "job", count: 1, spec: `
  restartPolicy: OnFailure
  containers: [{name: main, ` + quick + `}]
`},
		{name: "static", count: 3, static: true, spec: `
  initContainers: [{name: first, ` + quick + `}]
  containers: [{name: main, ` + idle + `, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]
`},
	}
}

// startingKind is the kind of the pods that start, and end, while the program of the node changes.
func startingKind() podKind {
	return podKind{name: "starting", count: 3, spec: `
  initContainers: [{name: first, ` + image + `, command: [sleep, "1"]}, {name: beside, restartPolicy: Always, ` + idle + `}]
  containers: [{name: main, ` + idle + `, volumeMounts: [{name: data, mountPath: /data}, {name: greeting, mountPath: /etc/greeting}]}, {name: more, ` + idle + `}]
  volumes: [{name: greeting, configMap: {name: greeting}}, {name: data, csi: {driver: loop.csi.example, fsType: ext4, volumeAttributes: {size: "16777216"}}}]
`}
}

// claimObjects returns the YAML of a claim that is bound to a volume of the driver of a storage class. more are further fields of the CSI source.
func claimObjects(class, mode, more string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-NAME}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: %[1]s
  %[2]s
  claimRef: {namespace: default, name: NAME}
  csi: {driver: %[1]s.csi.example, volumeHandle: NAME%[3]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s, %[2]s, resources: {requests: {storage: 16Mi}}}
`, class, mode, more)
}

// names returns the names of the pods of a kind, as in their YAML. Each begins with prefix.
func (k *podKind) names(prefix string) (names []string) {
	for i := range k.count {
		names = append(names, fmt.Sprintf("%s%s-%d", prefix, k.name, i))
	}
	return names
}

// podText returns the YAML of the pod with this name, and of its objects. app is the value of its label.
func (k *podKind) podText(name, app string) string {
	text := "\napiVersion: v1\nkind: Pod\nmetadata: {name: NAME, labels: {app: " + app + "}}\nspec:\n  terminationGracePeriodSeconds: 1" + k.spec
	return strings.ReplaceAll(text+k.objects, "NAME", name)
}

// podTexts returns the YAML of the pods with these names.
func (k *podKind) podTexts(names []string, app string) string {
	var all strings.Builder
	for _, name := range names {
		all.WriteString("\n---" + k.podText(name, app))
	}
	return all.String()
}

// movingObjects are the objects of all pods, and a Deployment that the test scales.
const movingObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {text: "0"}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {key: value}
---
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
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk}
provisioner: disk.csi.example
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: moving}
spec:
  replicas: 1
  selector: {matchLabels: {app: moving}}
  template:
    metadata: {labels: {app: moving}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, ` + idle + `, readinessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 40}, volumeMounts: [{name: greeting, mountPath: /etc/greeting}]}
      volumes: [{name: greeting, configMap: {name: greeting}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crashing}
spec:
  selector: {matchLabels: {app: crashing}}
  template:
    metadata: {labels: {app: crashing}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, ` + image + `, command: ["false"]}]
`
