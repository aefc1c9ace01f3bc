// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/conformance"
)

// Parts of valid manifests, in the flow style of YAML. In a part, Q stands for a quantity, M for an amount of memory and S for a
// string.
var (
	metadataParts = []string{
		"labels: {}", "labels: {a: b, app.kubernetes.io/name: web, A: ''}", "annotations: {}", "annotations: {a: S, b: S}", "namespace: kube-system",
		"namespace: ''", "finalizers: []", "finalizers: [example.com/f]", "ownerReferences: []", "creationTimestamp: null", "creationTimestamp: '2026-01-02T03:04:05Z'",
		"ownerReferences: [{apiVersion: v1, kind: Node, name: node-1, uid: u, controller: true}]", "generateName: web-", "uid: fixed-uid", "resourceVersion: '7'",
		"generation: 3", "deletionGracePeriodSeconds: 3", "managedFields: [{manager: m, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {f:spec: {}}}]",
	}
	specParts = []string{
		"hostNetwork: true", "hostNetwork: yes", "hostPID: true", "hostIPC: true", "shareProcessNamespace: false", "hostUsers: true", "restartPolicy: Never",
		"restartPolicy: OnFailure", "terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 0o17", "activeDeadlineSeconds: 100", "dnsPolicy: Default",
		"dnsPolicy: ClusterFirstWithHostNet", "dnsConfig: {nameservers: [1.1.1.1], searches: [a.b], options: [{name: ndots, value: '1'}, {name: x}]}", "dnsConfig: {}",
		"nodeSelector: {}", "nodeSelector: {kubernetes.io/os: linux}", "automountServiceAccountToken: false", "hostname: h", "subdomain: s", "setHostnameAsFQDN: true",
		"imagePullSecrets: []", "schedulerName: other", "priority: 2000001000, priorityClassName: system-node-critical", "preemptionPolicy: Never",
		"enableServiceLinks: false", "os: {name: linux}", "hostAliases: [{ip: 1.2.3.4, hostnames: [a, b.c]}]", "hostAliases: []", "runtimeClassName: runc",
		"tolerations: [{operator: Exists}]", "tolerations: [{operator: Exists, effect: NoExecute}]", "tolerations: [{key: a, value: b, effect: NoExecute, tolerationSeconds: 30}]",
		"readinessGates: [{conditionType: example.com/ready}]", "overhead: {cpu: Q, memory: M}", "overhead: {}", "resources: {}", "resourceClaims: []", "nodeName: other",
		"resources: {limits: {cpu: 64, memory: 1Ti}}", "resources: {requests: {memory: 1Ti, cpu: 1e3}, limits: {memory: 2Ti}}", "schedulingGates: []",
		"securityContext: {}", "securityContext: null", "securityContext: {runAsUser: 0, runAsNonRoot: false, fsGroup: 1, supplementalGroups: [1, 2]}",
		"securityContext: {seccompProfile: {type: RuntimeDefault}, sysctls: [{name: kernel.shm_rmid_forced, value: '0'}]}",
		"securityContext: {seLinuxOptions: {level: s0}, appArmorProfile: {type: Unconfined}, fsGroupChangePolicy: Always, supplementalGroupsPolicy: Merge}",
		"topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: []}]",
		"affinity: {}", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}",
		"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {}, namespaces: []}}]}}",
		"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}]}}",
	}
	volumeParts = []string{
		"emptyDir: {}", "", "emptyDir: {medium: Memory, sizeLimit: M}", "hostPath: {path: /x}", "hostPath: {path: /x, type: DirectoryOrCreate}",
		"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, mode: 0400, resourceFieldRef: {containerName: c0, resource: limits.cpu, divisor: 1m}}]}",
		"downwardAPI: {}", "projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]}", "projected: {defaultMode: 0444, sources: []}",
		"nfs: {server: s, path: /p, readOnly: true}", "iscsi: {targetPortal: 1.2.3.4, iqn: 'iqn.2026-01.a:b', lun: 0}", "iscsi: {targetPortal: 1.2.3.4, iqn: 'iqn.2026-01.a:b', lun: 1, portals: []}",
		"rbd: {monitors: [a], image: i}", "rbd: {monitors: [a], image: i, pool: p, user: u, keyring: k}", "cephfs: {monitors: [a]}",
		"cinder: {volumeID: v}", "flocker: {datasetName: d}", "fc: {targetWWNs: [a], lun: 1}", "flexVolume: {driver: a/b, options: {x: S}}", "gitRepo: {repository: r, revision: v}",
		"awsElasticBlockStore: {volumeID: v, partition: 1}", "gcePersistentDisk: {pdName: p}", "vsphereVolume: {volumePath: p}", "quobyte: {registry: 'r:1', volume: v}",
		"azureDisk: {diskName: d, diskURI: 'https://blob/x'}", "azureDisk: {diskName: d, diskURI: 'https://blob/x', kind: Dedicated, cachingMode: None, fsType: xfs, readOnly: true}",
		"photonPersistentDisk: {pdID: p}", "portworxVolume: {volumeID: v}", "storageos: {volumeName: v}", "image: {reference: 'i:latest'}", "image: {reference: i@sha256, pullPolicy: Never}",
	}
	containerParts = []string{
		"command: [S]", "args: []", "args: ['-x', S]", "workingDir: /w", "imagePullPolicy: Never", "stdin: true", "tty: true", "terminationMessagePath: /dev/x",
		"terminationMessagePolicy: FallbackToLogsOnError", "ports: []", "ports: [{containerPort: 80, name: http}, {containerPort: 53, protocol: UDP}]", "env: []", "envFrom: []",
		"env: [{name: A, value: S}, {name: B}]", "env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]",
		"env: [{name: R, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}]",
		"resources: {}", "resources: {limits: {}}", "resources: {limits: {}, requests: {}}", "resources: {requests: {cpu: Q}}", "resources: {limits: {cpu: Q, memory: M}}",
		"resources: {limits: {memory: M, ephemeral-storage: M}, requests: {cpu: Q}}", "resources: {limits: {hugepages-2Mi: 4Mi, memory: M, cpu: Q}}", "resources: {limits: {example.com/gpu: 2}}",
		"livenessProbe: {exec: {command: [a]}, initialDelaySeconds: 3}", "livenessProbe: {httpGet: {port: 80}}", "livenessProbe: {tcpSocket: {port: 80, host: h}, periodSeconds: 1, terminationGracePeriodSeconds: 9}",
		"readinessProbe: {httpGet: {port: 80, path: /x, scheme: HTTPS, httpHeaders: [{name: X-A, value: S}]}, failureThreshold: 8}", "readinessProbe: {grpc: {port: 5}}",
		"startupProbe: {grpc: {port: 5, service: s}, timeoutSeconds: 15}", "lifecycle: {}", "lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {exec: {command: [a]}}}",
		"lifecycle: {preStop: {httpGet: {port: 80}}}", "securityContext: {}", "securityContext: {privileged: true}",
		"securityContext: {runAsUser: 5, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {add: [NET_ADMIN], drop: []}, procMount: Default}",
		"resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]", "volumeMounts: []", "volumeMounts: [{name: v0, mountPath: /v}]",
		"volumeMounts: [{name: v0, mountPath: /a, subPath: x, readOnly: true}, {name: v0, mountPath: /b, mountPropagation: None}]", "restartPolicy: Always", "volumeDevices: []",
	}
	statusParts = []string{
		"phase: Running", "podIP: 1.2.3.4", "podIPs: [{ip: 1.2.3.4}, {ip: '::1'}]", "podIP: 1.2.3.4, hostIP: 1.2.3.5", "conditions: []", "startTime: '2026-01-02T03:04:05Z'",
		"containerStatuses: [{name: c0, ready: true, restartCount: 1, image: i, imageID: j, state: {running: {startedAt: '2026-01-02T03:04:05Z'}}, allocatedResources: {cpu: Q}}]",
		"conditions: [{type: Ready, status: 'True', lastProbeTime: null, lastTransitionTime: '2026-01-02T03:04:05Z'}]", "qosClass: Burstable", "resources: {limits: {cpu: Q}}",
	}
)

// randomManifest returns a manifest in a file or at a URL. Most are valid.
func randomManifest(c *conformance.Choices) staticManifest {
	m := staticManifest{Location: "/etc/kubernetes/manifests/web.yaml", NodeName: conformance.Pick(c, "node-1", "n", "a.b"), IsFile: true}
	text := randomPodText(c, 0, "apiVersion: v1, kind: Pod, ")
	if c.OneIn(3) {
		m.Location, m.IsFile = conformance.Pick(c, "http://a/b", "https://user:secret@host:1/x?y=%20z"), false
		if c.OneIn(2) {
			var items []string
			for i := range conformance.Pick(c, 1, 2, 3) {
				items = append(items, randomPodText(c, i, conformance.Pick(c, "", "apiVersion: v1, kind: Pod, ")))
			}
			text = "{apiVersion: v1, kind: PodList, items: [" + strings.Join(items, ", ") + "]}"
		}
	}
	m.Text = "# YAML\n" + text
	if c.OneIn(2) {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			panic(fmt.Sprint(err, "\n", text))
		}
		m.Text = string(data)
	}
	return m
}

// randomPodText returns pod number i in the flow style of YAML. head is the begin of its content.
func randomPodText(c *conformance.Choices, i int, head string) string {
	parts := []string{"metadata: {name: web" + strconv.Itoa(i) + addParts(c, metadataParts) + "}"}
	spec := "spec: {containers: [" + randomContainers(c, "c", 1+c.Int(2)) + "]"
	if c.OneIn(3) {
		spec += ", initContainers: [" + randomContainers(c, "i", c.Int(2)) + "]"
	}
	spec += ", volumes: [{name: v0}"
	for n := range c.Int(3) {
		spec += ", {" + strings.TrimSuffix("name: v"+strconv.Itoa(n+1)+", "+conformance.Pick(c, volumeParts...), ", ") + "}"
	}
	parts = append(parts, spec+"]"+addParts(c, specParts)+"}")
	if c.OneIn(4) {
		parts = append(parts, "status: {"+strings.TrimPrefix(addParts(c, statusParts), ", ")+"}")
	}
	return "{" + head + strings.Join(parts, ", ") + "}"
}

func randomContainers(c *conformance.Choices, prefix string, count int) string {
	var list []string
	for i := range count {
		image := conformance.Pick(c, "nginx", "nginx:1", "r.io/a/b:latest", "r.io:5000/a", "a@sha256:"+strings.Repeat("0", 64), "A:b:c")
		list = append(list, "{name: "+prefix+strconv.Itoa(i)+", image: '"+image+"'"+addParts(c, containerParts)+"}")
	}
	return strings.Join(list, ", ")
}

// addParts returns random parts, each after a comma, with at most one part for a field.
func addParts(c *conformance.Choices, parts []string) string {
	var b strings.Builder
	used := map[string]bool{}
	for range conformance.Pick(c, 0, 1, 2, 3, 5) {
		part := strings.TrimSuffix(conformance.Pick(c, parts...), ", ")
		key, _, _ := strings.Cut(part, ":")
		if used[key] {
			continue
		}
		used[key] = true
		b.WriteString(", " + fillPart(c, part))
	}
	return b.String()
}

// fillPart replaces the placeholders Q, M and S of a part.
func fillPart(c *conformance.Choices, part string) string {
	words := strings.FieldsFunc(part, func(r rune) bool { return strings.ContainsRune(" ,{}[]", r) })
	for _, word := range words {
		value := ""
		switch word {
		case "Q":
			value = conformance.Pick(c, "1", "0.5", "1e3", "'1e3'", "'1.5'", "100m", "'0.0001'", "1500u", "2.50", "'1E1'", "0", "00100m", "64")
		case "M":
			value = conformance.Pick(c, "128Mi", "1.5Gi", "1e9", "'1e9'", "1000000000", "0.7Gi", "1Ki", "2G", "12E6", "'12E6'", "0", "8Ei", "99999999999999999999")
		case "S":
			value = conformance.Pick(c, "a", "''", "'ü 世界'", "'a b'", "'{\"x\": [1]}'", `"line\n\ttab"`, "'<nil>'", `"\u00e9\U0001F600"`)
		default:
			continue
		}
		part = replaceWord(part, word, value)
	}
	return part
}

// replaceWord replaces the first occurrence of the word in text that is a value.
func replaceWord(text, word, value string) string {
	for _, before := range []string{": ", "[", ", "} {
		for _, after := range []string{"}", ",", "]"} {
			if i := strings.Index(text, before+word+after); i >= 0 {
				return text[:i+len(before)] + value + text[i+len(before)+len(word):]
			}
		}
	}
	return text
}
