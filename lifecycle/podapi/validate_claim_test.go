// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func TestValidateClaims(t *testing.T) {
	const good = "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"
	template := func(spec string) string { return "ephemeral: {volumeClaimTemplate: {spec: {" + spec + "}}}" }
	const at = "ephemeral.volumeClaimTemplate"
	for name, test := range map[string]struct{ source, want string }{
		"claim":                              {"persistentVolumeClaim: {claimName: db, readOnly: true}", ""},
		"claim, no name":                     {"persistentVolumeClaim: {}", "persistentVolumeClaim.claimName: Required value"},
		"ephemeral":                          {template(good), ""},
		"no template":                        {"ephemeral: {}", at + ": Required value"},
		"labels":                             {"ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {" + good + "}}}", ""},
		"invalid label":                      {"ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: 'b c'}}, spec: {" + good + "}}}", at + ".metadata.labels: Invalid value"},
		"name":                               {"ephemeral: {volumeClaimTemplate: {metadata: {name: x}, spec: {" + good + "}}}", at + ".metadata: Forbidden"},
		"no modes":                           {template("resources: {requests: {storage: 1Gi}}"), at + ".spec.accessModes: Required value"},
		"unknown mode":                       {template("accessModes: [ReadOften], resources: {requests: {storage: 1Gi}}"), at + ".spec.accessModes: Unsupported value"},
		"ReadWriteOncePod with another mode": {template("accessModes: [ReadWriteOncePod, ReadWriteMany], resources: {requests: {storage: 1Gi}}"), at + ".spec.accessModes: Forbidden"},
		"no size":                            {template("accessModes: [ReadWriteOnce]"), at + ".spec.resources[storage]: Required value"},
		"size 0":                             {template("accessModes: [ReadWriteOnce], resources: {requests: {storage: 0}}"), at + ".spec.resources[storage]: Invalid value"},
		"unknown volume mode":                {template(good + ", volumeMode: Tape"), at + ".spec.volumeMode: Unsupported value"},
		"invalid class":                      {template(good + ", storageClassName: 'a b'"), at + ".spec.storageClassName: Invalid value"},
		"no class":                           {template(good + ", storageClassName: ''"), ""},
		"selector, operator":                 {template(good + ", selector: {matchExpressions: [{key: a, operator: Near}]}"), at + ".spec.selector.matchExpressions[0].operator: Invalid value"},
		"nfs":                                {"nfs: {server: s, path: /export}", ""},
		"nfs, no server":                     {"nfs: {path: /export}", "nfs.server: Required value"},
		"nfs, relative path":                 {"nfs: {server: s, path: export}", "nfs.path: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := podapi.Validate(podtest.Pod(t, "{volumes: [{name: v, "+test.source+"}], containers: [{name: c, image: i}]}"))
			if test.want == "" {
				assert.Empty(t, errs)
				return
			}
			assert.Contains(t, errs.ToAggregate().Error(), "spec.volumes[0]."+test.want)
		})
	}
}

func TestEphemeralClaimNameValidated(t *testing.T) {
	p := podtest.Pod(t, "{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}], containers: [{name: c, image: i}]}")
	assert.Equal(t, corev1.PersistentVolumeFilesystem, *p.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec.VolumeMode)
	p.Name = strings.Repeat("x", 252)
	assert.Contains(t, podapi.Validate(p).ToAggregate().Error(), `spec.volumes[0].name: Invalid value: "v": PVC name "xxx`)
}
