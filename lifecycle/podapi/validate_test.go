// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func TestDefault(t *testing.T) {
	p := podtest.Pod(t, "{hostNetwork: true, terminationGracePeriodSeconds: -1}", `{ports: [{containerPort: 80}],
		resources: {limits: {cpu: 1, memory: 1Mi}, requests: {memory: 1k}}, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`)
	assert.Equal(t, corev1.RestartPolicyAlways, p.Spec.RestartPolicy)
	assert.Equal(t, corev1.DNSClusterFirst, p.Spec.DNSPolicy)
	assert.Equal(t, "default-scheduler", p.Spec.SchedulerName)
	assert.EqualValues(t, 1, *p.Spec.TerminationGracePeriodSeconds)
	assert.EqualValues(t, 30, *podtest.Pod(t).Spec.TerminationGracePeriodSeconds)
	assert.True(t, *p.Spec.EnableServiceLinks)
	assert.NotNil(t, p.Spec.SecurityContext)
	c := p.Spec.Containers[0]
	assert.Equal(t, corev1.ContainerPort{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}, c.Ports[0])
	assert.Equal(t, "/dev/termination-log", c.TerminationMessagePath)
	assert.Equal(t, corev1.TerminationMessageReadFile, c.TerminationMessagePolicy)
	assert.Equal(t, "v1", c.Env[0].ValueFrom.FieldRef.APIVersion)
	assert.Equal(t, "1", c.Resources.Requests.Cpu().String())
	assert.Equal(t, "1k", c.Resources.Requests.Memory().String())

	again := p.DeepCopy()
	podapi.Default(again)
	assert.Equal(t, p, again)
}

// Ephemeral containers get no defaults for fields that they may not have.
func TestDefaultAppliesToAllContainerLists(t *testing.T) {
	const c = "image: i, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}"
	p := podtest.Pod(t, "{hostNetwork: true, initContainers: [{name: i, "+c+"}], ephemeralContainers: [{name: e, "+c+"}]}")
	i, e := p.Spec.InitContainers[0], p.Spec.EphemeralContainers[0]
	assert.Equal(t, corev1.PullAlways, i.ImagePullPolicy)
	assert.Equal(t, corev1.PullAlways, e.ImagePullPolicy)
	assert.Equal(t, corev1.ContainerPort{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}, i.Ports[0])
	assert.Equal(t, corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolTCP}, e.Ports[0])
	assert.Equal(t, "1", i.Resources.Requests.Cpu().String())
	assert.Empty(t, e.Resources.Requests)
}

func TestDefaultPullPolicy(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("01", 32)
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                     corev1.PullAlways,
		"nginx:latest":              corev1.PullAlways,
		"localhost:5000/nginx":      corev1.PullAlways,
		"localhost:5000/nginx:1":    corev1.PullIfNotPresent,
		"nginx:1":                   corev1.PullIfNotPresent,
		"nginx" + digest:            corev1.PullIfNotPresent,
		"nginx:latest" + digest:     corev1.PullAlways,
		"localhost:5000/a" + digest: corev1.PullIfNotPresent,
		"nginx:latest@sha256:0123":  corev1.PullIfNotPresent, // not a valid image name, as in the API server
	} {
		assert.Equal(t, want, podtest.Pod(t, "", "image: "+image).Spec.Containers[0].ImagePullPolicy, image)
	}
}

// firstError returns the text of the first error.
func firstError(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs[0].Error()
}

func TestValidate(t *testing.T) {
	const c = "spec.containers[0]."
	for name, test := range map[string]struct{ spec, container, want string }{
		"valid":                                 {"", "", ""},
		"no containers":                         {"containers: []", "", "spec.containers: Required value"},
		"duplicate container name":              {"containers: [{name: a, image: i}, {name: a, image: i}]", "", "spec.containers[1].name: Duplicate value: \"a\""},
		"restart policy":                        {"restartPolicy: Maybe", "", `spec.restartPolicy: Unsupported value: "Maybe"`},
		"DNS policy":                            {"dnsPolicy: Maybe", "", `spec.dnsPolicy: Unsupported value: "Maybe"`},
		"DNS none":                              {"dnsPolicy: None", "", "spec.dnsConfig.nameservers: Required value"},
		"DNS name server":                       {"dnsConfig: {nameservers: [x]}", "", "spec.dnsConfig.nameservers[0]: Invalid value"},
		"too many DNS name servers":             {"dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}", "", "spec.dnsConfig.nameservers: Too many: 4"},
		"DNS search domain":                     {"dnsConfig: {searches: [., a_b., A]}", "", "spec.dnsConfig.searches[2]: Invalid value: \"A\""},
		"DNS option":                            {"dnsConfig: {options: [{value: x}]}", "", "spec.dnsConfig.options[0].name: Required value"},
		"hostname":                              {"hostname: a.b", "", "spec.hostname: Invalid value"},
		"subdomain":                             {"subdomain: A", "", "spec.subdomain: Invalid value"},
		"readiness gate":                        {"readinessGates: [{conditionType: a b}]", "", "spec.readinessGates[0].conditionType: Invalid value"},
		"hostname override on the host network": {"{hostnameOverride: a.b, hostNetwork: true}", "", "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork"},
		"deadline":                              {"activeDeadlineSeconds: 0", "", "spec.activeDeadlineSeconds: Invalid value: 0"},
		"shared PID and host":                   {"{hostPID: true, shareProcessNamespace: true}", "", "spec.shareProcessNamespace: Invalid value"},
		"user":                                  {"securityContext: {runAsUser: -1}", "", "spec.securityContext.runAsUser: Invalid value: -1"},
		"group":                                 {"securityContext: {supplementalGroups: [1, -1]}", "", "spec.securityContext.supplementalGroups[1]: Invalid value: -1"},
		"group policy":                          {"securityContext: {supplementalGroupsPolicy: X}", "", "spec.securityContext.supplementalGroupsPolicy: Unsupported value"},
		"volume group policy":                   {"securityContext: {fsGroupChangePolicy: X}", "", "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"X\""},
		"SELinux policy":                        {"securityContext: {seLinuxChangePolicy: X}", "", "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"X\""},
		"sysctl":                                {"securityContext: {sysctls: [{name: 'a b', value: x}]}", "", "spec.securityContext.sysctls[0].name: Invalid value"},
		"duplicate sysctl":                      {"securityContext: {sysctls: [{name: a.b, value: x}, {name: a.b, value: y}]}", "", "spec.securityContext.sysctls[1].name: Duplicate value"},
		"sysctl of the host network":            {"{hostNetwork: true, securityContext: {sysctls: [{name: net/x, value: x}]}}", "", "spec.securityContext.sysctls[0].name: Invalid value: \"net/x\": may not be specified when `hostNetwork`"},
		"sysctl of host's IPC":                  {"{hostIPC: true, securityContext: {sysctls: [{name: kernel.shmmax, value: x}]}}", "", "spec.securityContext.sysctls[0].name: Invalid value"},
		"seccomp":                               {"securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x}}", "", "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'"},
		"seccomp, no file":                      {"securityContext: {seccompProfile: {type: Localhost}}", "", "spec.securityContext.seccompProfile.localhostProfile: Required value"},
		"sum of requests":                       {"{resources: {requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {cpu: 2}}}]}", "", "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to the containers' requests of 2"},
		"limit above the pod's limit":           {"{resources: {limits: {cpu: 1}}, containers: [{name: a, image: i, resources: {limits: {cpu: 2}}}]}", "", c + "resources.limits[cpu]: Invalid value: \"2\""},
		"overhead":                              {"overhead: {cpu: -1}", "", "spec.overhead[cpu]: Invalid value: \"-1\""},

		"container name":                {"", "name: A", c + "name: Invalid value: \"A\""},
		"no name":                       {"", "name: ''", c + "name: Required value"},
		"no image":                      {"", "image: ''", c + "image: Required value"},
		"image":                         {"", "image: 'a '", c + "image: Invalid value: \"a \""},
		"pull policy":                   {"", "imagePullPolicy: Maybe", c + "imagePullPolicy: Unsupported value"},
		"port":                          {"", "ports: [{containerPort: 65536}]", c + "ports[0].containerPort: Invalid value: 65536"},
		"no port":                       {"", "ports: [{name: x}]", c + "ports[0].containerPort: Required value"},
		"protocol":                      {"", "ports: [{containerPort: 1, protocol: tcp}]", c + "ports[0].protocol: Unsupported value: \"tcp\""},
		"port name":                     {"", "ports: [{containerPort: 1, name: A_B}]", c + "ports[0].name: Invalid value"},
		"duplicate port name":           {"", "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]", c + "ports[1].name: Duplicate value: \"a\""},
		"duplicate host port":           {"", "ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]", c + "ports[1].hostPort: Duplicate value: \"TCP//5\""},
		"host port on the host network": {"hostNetwork: true", "ports: [{containerPort: 1, hostPort: 5}]", c + "ports[0].hostPort: Invalid value: 5: must match"},
		"variable name":                 {"", "env: [{name: 'a=b'}]", c + "env[0].name: Invalid value: \"a=b\""},
		"field path":                    {"", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]", c + "env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"spec.x\""},
		"subscript":                     {"", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.name['x']\"}}}]", c + "env[0].valueFrom.fieldRef.fieldPath: Invalid value"},
		"resource field":                {"", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.x}}}]", c + "env[0].valueFrom.resourceFieldRef.resource: Unsupported value: \"limits.x\""},
		"divisor":                       {"", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Ki}}}]", c + "env[0].valueFrom.resourceFieldRef.divisor: Unsupported value: \"1Ki\""},
		"variable, no source":           {"", "env: [{name: A, valueFrom: {}}]", c + "env[0].valueFrom: Invalid value: \"\": must have exactly one source"},
		"value and source":              {"", "env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", c + "env[0].valueFrom: Invalid value: \"\": may not be specified when `value`"},
		"object key":                    {"", "env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: b}}}, {name: B, valueFrom: {secretKeyRef: {name: a, key: .b}}}]", ""},
		"object key, object name":       {"", "env: [{name: A, valueFrom: {configMapKeyRef: {name: A, key: b}}}]", c + `env[0].valueFrom.configMapKeyRef.name: Invalid value: "A"`},
		"object key, no object":         {"", "env: [{name: A, valueFrom: {secretKeyRef: {key: b}}}]", c + `env[0].valueFrom.secretKeyRef.name: Invalid value: ""`},
		"object key, no key":            {"", "env: [{name: A, valueFrom: {secretKeyRef: {name: a}}}]", c + "env[0].valueFrom.secretKeyRef.key: Required value"},
		"object key, ..":                {"", "env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: ..}}}]", c + `env[0].valueFrom.secretKeyRef.key: Invalid value: ".."`},
		"file":                          {"volumes: [{name: v}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/b, key: B}}}]", ""},
		"file, no volume":               {"", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a, key: B}}}]", c + `env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"`},
		"file, other volume":            {"volumes: [{name: v, hostPath: {path: /}}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a, key: B}}}]", c + `env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v": must be of type emptyDir`},
		"file, no path":                 {"volumes: [{name: v}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, key: B}}}]", c + "env[0].valueFrom.fileKeyRef.path: Required value"},
		"file, path":                    {"volumes: [{name: v}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/.., key: B}}}]", c + `env[0].valueFrom.fileKeyRef.path: Invalid value: "a/.."`},
		"file, long path":               {"volumes: [{name: v}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: " + strings.Repeat("x", 4096) + ", key: B}}}]", c + "env[0].valueFrom.fileKeyRef.path: Too long: may not be more than 4095 bytes"},
		"file, key":                     {"volumes: [{name: v}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a, key: B=}}}]", c + `env[0].valueFrom.fileKeyRef.key: Invalid value: "B="`},
		"objects":                       {"", "envFrom: [{prefix: a., configMapRef: {name: a}}, {secretRef: {name: b.c}}]", ""},
		"objects, prefix":               {"", "envFrom: [{prefix: a=, configMapRef: {name: a}}]", c + `envFrom[0].prefix: Invalid value: "a="`},
		"objects, none":                 {"", "envFrom: [{prefix: a}]", c + `envFrom[0]: Invalid value: "": must have exactly one source`},
		"objects, two":                  {"", "envFrom: [{configMapRef: {name: a}, secretRef: {name: a}}]", c + `envFrom[0]: Invalid value: "": must have exactly one source`},
		"objects, no name":              {"", "envFrom: [{secretRef: {}}]", c + "envFrom[0].secretRef.name: Required value"},
		"objects, name":                 {"", "envFrom: [{configMapRef: {name: A}}]", c + `envFrom[0].configMapRef.name: Invalid value: "A"`},
		"variable, two sources":         {"", "env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}, fieldRef: {fieldPath: metadata.name}}}]", c + "env[0].valueFrom: Invalid value: \"\": must have exactly one source"},
		"negative limit":                {"", "resources: {limits: {cpu: -1}}", c + "resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"},
		"unknown resource":              {"", "resources: {limits: {gpu: 1}}", c + "resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource"},
		"request above the limit":       {"", "resources: {limits: {cpu: 1}, requests: {cpu: 2}}", c + "resources.requests[cpu]: Invalid value: \"2\": must be less than or equal to the limit of 1"},
		"huge pages":                    {"", "resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}", c + "resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": must be a multiple"},
		"huge pages alone":              {"", "resources: {limits: {hugepages-2Mi: 2Mi}}", c + "resources: Forbidden: HugePages require cpu or memory"},
		"escalation":                    {"", "securityContext: {privileged: true, allowPrivilegeEscalation: false}", c + "securityContext.allowPrivilegeEscalation: Invalid value"},
		"proc mount":                    {"", "securityContext: {procMount: Unmasked}", c + "securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false"},
		"AppArmor":                      {"", "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' x'}}", c + "securityContext.appArmorProfile.localhostProfile: Invalid value"},
		"Windows options":               {"securityContext: {windowsOptions: {}}", "securityContext: {windowsOptions: {runAsUserName: a}}", ""},
		"Windows options, Linux":        {"{os: {name: linux}, securityContext: {windowsOptions: {}}}", "", "spec.securityContext.windowsOptions: Forbidden: cannot be set for a linux pod"},
		"Windows options, container":    {"os: {name: linux}", "securityContext: {windowsOptions: {}}", c + "securityContext.windowsOptions: Forbidden: cannot be set for a linux pod"},
		"Windows options, Windows":      {"{os: {name: windows}, securityContext: {windowsOptions: {}}}", "securityContext: {windowsOptions: {}}", ""},
		"Windows options, init":         {"{os: {name: linux}, initContainers: [{name: i, image: i, securityContext: {windowsOptions: {}}}]}", "", "spec.initContainers[0].securityContext.windowsOptions: Forbidden"},
		"stop signal":                   {"os: {name: linux}", "lifecycle: {stopSignal: SIGRTMIN+16}", c + "lifecycle.stopSignal: Invalid value: \"SIGRTMIN+16\""},
		"stop signal, no OS":            {"", "lifecycle: {stopSignal: SIGTERM}", c + "lifecycle.stopSignal: Forbidden"},
		"rule":                          {"", "{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}", ""},
		"rule, no policy":               {"", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]", c + "restartPolicy: Required value"},
		"rule, operator":                {"", "{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: [42]}}]}", c + "restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\""},
		"rule, action":                  {"", "{restartPolicy: Never, restartPolicyRules: [{action: Stop, exitCodes: {operator: NotIn}}]}", c + "restartPolicyRules[0].action: Unsupported value: \"Stop\""},
		"rule, no codes":                {"", "{restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers}]}", c + "restartPolicyRules[0].exitCodes: Required value"},
		"rules":                         {"", "{restartPolicy: Never, restartPolicyRules: [" + strings.Repeat("{action: Restart, exitCodes: {operator: In}},", 21) + "]}", c + "restartPolicyRules: Too many: 21: must have at most 20 items"},
	} {
		t.Run(name, func(t *testing.T) {
			fragments := []string{test.spec, test.container}
			if test.container == "" {
				fragments = fragments[:1]
			}
			got := firstError(podapi.Validate(podtest.Pod(t, fragments...)))
			if test.want == "" {
				assert.Empty(t, got)
			} else {
				assert.True(t, strings.HasPrefix(got, test.want), "got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestValidateMetadata(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		"metadata.name: Invalid value: \"A\"":        func(p *corev1.Pod) { p.Name = "A" },
		"metadata.namespace: Required value":         func(p *corev1.Pod) { p.Namespace = "" },
		"metadata.uid: Required value":               func(p *corev1.Pod) { p.UID = "" },
		"metadata.uid: Invalid value: \"../../etc\"": func(p *corev1.Pod) { p.UID = "../../etc" },
		"metadata.labels: Invalid value: \"a b\"":    func(p *corev1.Pod) { p.Labels = map[string]string{"a b": ""} },
		"metadata.annotations: Invalid value: \"device-plugin.example.com/gpu-\"": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"device-plugin.example.com/gpu-": ""}
		},
		"metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid value: \"x\"": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "x"}
		},
		"metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]: Invalid value: \"d\": container not found": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/d": "unconfined"}
		},
		"spec.containers[0].securityContext.appArmorProfile: Forbidden: must not contradict the annotation": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "localhost/a"}
			p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: "Localhost", LocalhostProfile: new("b")}
		},
	} {
		p := podtest.Pod(t)
		change(p)
		got := firstError(podapi.Validate(p))
		assert.True(t, strings.HasPrefix(got, want), "got  %s\nwant %s", got, want)
	}
}

func TestUnsupported(t *testing.T) {
	const c = "spec.containers[0]."
	for _, test := range []struct{ spec, container, field string }{
		{"resourceClaims: [{name: r}]", "", "spec.resourceClaims"},
		{"os: {name: windows}", "", "spec.os"},
		{"", "resources: {claims: [{name: r}]}", c + "resources.claims"},
		{"initContainers: [{name: i, resources: {claims: [{name: r}]}}]", "", "spec.initContainers[0].resources.claims"},
	} {
		errs := podapi.Unsupported(podtest.Pod(t, test.spec, test.container))
		if assert.Len(t, errs, 1, test.field) {
			assert.Equal(t, test.field, errs[0].Field)
			assert.Contains(t, errs[0].Detail, "not supported by this version: ")
		}
	}
	assert.Empty(t, podapi.Unsupported(podtest.Pod(t)))
}
