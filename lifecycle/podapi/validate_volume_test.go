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

func TestDefaultVolumeSources(t *testing.T) {
	v := podtest.Pod(t, `volumes: [{name: a, hostPath: {path: /}}, {name: b, configMap: {name: x}}, {name: c, secret: {secretName: x, defaultMode: 0400}},
		{name: d, downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}},
		{name: e, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}}]}}]`).Spec.Volumes
	assert.Equal(t, corev1.HostPathUnset, *v[0].HostPath.Type)
	assert.EqualValues(t, 0o644, *v[1].ConfigMap.DefaultMode)
	assert.EqualValues(t, 0o400, *v[2].Secret.DefaultMode)
	assert.EqualValues(t, 0o644, *v[3].DownwardAPI.DefaultMode)
	assert.Equal(t, "v1", v[3].DownwardAPI.Items[0].FieldRef.APIVersion)
	assert.EqualValues(t, 0o644, *v[4].Projected.DefaultMode)
	assert.EqualValues(t, 3600, *v[4].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds)
	assert.Equal(t, "v1", v[4].Projected.Sources[1].DownwardAPI.Items[0].FieldRef.APIVersion)
}

func TestValidateVolumeSources(t *testing.T) {
	const sources = "projected.sources"
	for name, test := range map[string]struct{ source, want string }{
		"emptyDir":                          {"emptyDir: {medium: Memory, sizeLimit: 1Gi}", ""},
		"size limit":                        {"emptyDir: {sizeLimit: '-1'}", "emptyDir.sizeLimit: Forbidden"},
		"hostPath":                          {"hostPath: {path: /a, type: FileOrCreate}", ""},
		"hostPath, no path":                 {"hostPath: {}", "hostPath.path: Required value"},
		"hostPath, path with ..":            {"hostPath: {path: /a/../b}", "hostPath.path: Invalid value"},
		"hostPath, type":                    {"hostPath: {path: /a, type: Door}", "hostPath.type: Unsupported value"},
		"configMap":                         {"configMap: {name: x, items: [{key: a, path: b/c, mode: 0777}]}", ""},
		"configMap, no name":                {"configMap: {}", "configMap.name: Required value"},
		"configMap, mode":                   {"configMap: {name: x, defaultMode: 01000}", "configMap.defaultMode: Invalid value"},
		"secret, no name":                   {"secret: {}", "secret.secretName: Required value"},
		"secret, mode":                      {"secret: {secretName: x, defaultMode: -1}", "secret.defaultMode: Invalid value"},
		"item, no key":                      {"secret: {secretName: x, items: [{path: b}]}", "secret.items[0].key: Required value"},
		"item, no path":                     {"secret: {secretName: x, items: [{key: b}]}", "secret.items[0].path: Required value"},
		"item, absolute":                    {"secret: {secretName: x, items: [{key: b, path: /b}]}", "secret.items[0].path: Invalid value"},
		"item, path with ..":                {"secret: {secretName: x, items: [{key: b, path: a/../b}]}", "secret.items[0].path: Invalid value"},
		"item, reserved":                    {"secret: {secretName: x, items: [{key: b, path: ..b}]}", "secret.items[0].path: Invalid value"},
		"item, mode":                        {"secret: {secretName: x, items: [{key: b, path: b, mode: 01000}]}", "secret.items[0].mode: Invalid value"},
		"downwardAPI":                       {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}", ""},
		"downwardAPI, subscript":            {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['a']\"}}]}", ""},
		"downwardAPI, no source":            {"downwardAPI: {items: [{path: a}]}", "downwardAPI.items[0]: Required value"},
		"downwardAPI, two sources":          {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu}}]}", "downwardAPI.items[0]: Invalid value"},
		"downwardAPI, field":                {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.podIP}}]}", "downwardAPI.items[0].fieldRef.fieldPath: Unsupported value"},
		"downwardAPI, old field":            {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: spec.host}}]}", "downwardAPI.items[0].fieldRef.fieldPath: Unsupported value"},
		"downwardAPI, no container":         {"downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}", "downwardAPI.items[0].resourceFieldRef.containerName: Required value"},
		"downwardAPI, resource":             {"downwardAPI: {items: [{path: a, resourceFieldRef: {containerName: c, resource: limits.gpu}}]}", "downwardAPI.items[0].resourceFieldRef.resource: Unsupported value"},
		"downwardAPI, mode":                 {"downwardAPI: {items: [{path: a, mode: 01000, fieldRef: {fieldPath: metadata.name}}]}", "downwardAPI.items[0].mode: Invalid value"},
		"projected":                         {"projected: {sources: [{configMap: {name: a}}, {secret: {name: a}}, {downwardAPI: {}}, {serviceAccountToken: {path: t}}, {clusterTrustBundle: {path: b, name: a}}]}", ""},
		"projected, no sources":             {"projected: {}", ""},
		"projected, mode":                   {"projected: {defaultMode: 01000}", "projected.defaultMode: Invalid value"},
		"source, none":                      {"projected: {sources: [{}]}", ""},
		"source, two":                       {"projected: {sources: [{configMap: {name: a}, secret: {name: a}}]}", sources + "[0]: Forbidden"},
		"source, no name":                   {"projected: {sources: [{configMap: {}}]}", sources + "[0].configMap.name: Required value"},
		"duplicate path":                    {"projected: {sources: [{configMap: {name: a, items: [{key: a, path: a}]}}, {secret: {name: a, items: [{key: a, path: a}]}}]}", sources + "[1].secret.items[0].path: Invalid value"},
		"token, duplicate path":             {"projected: {sources: [{configMap: {name: a, items: [{key: a, path: a}]}}, {serviceAccountToken: {path: a}}]}", ""},
		"token, no path":                    {"projected: {sources: [{serviceAccountToken: {}}]}", sources + "[0].serviceAccountToken.path: Required value"},
		"token, expiration too short":       {"projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 599}}]}", sources + "[0].serviceAccountToken.expirationSeconds: Invalid value"},
		"token, expiration too long":        {"projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 4294967297}}]}", sources + "[0].serviceAccountToken.expirationSeconds: Invalid value"},
		"bundle, no name and no signer":     {"projected: {sources: [{clusterTrustBundle: {path: a}}]}", sources + "[0].clusterTrustBundle: Required value"},
		"bundle, name and signer":           {"projected: {sources: [{clusterTrustBundle: {path: a, name: a, signerName: b}}]}", sources + "[0].clusterTrustBundle: Invalid value"},
		"bundle, empty name":                {"projected: {sources: [{clusterTrustBundle: {path: a, name: ''}}]}", sources + "[0].clusterTrustBundle.name: Required value"},
		"bundle, empty signer":              {"projected: {sources: [{clusterTrustBundle: {path: a, signerName: ''}}]}", sources + "[0].clusterTrustBundle.signerName: Required value"},
		"bundle, selector":                  {"projected: {sources: [{clusterTrustBundle: {path: a, name: a, labelSelector: {}}}]}", sources + "[0].clusterTrustBundle.labelSelector: Invalid value"},
		"certificate":                       {"projected: {sources: [{podCertificate: {signerName: a, keyType: ED25519, keyPath: a, certificateChainPath: b}}]}", ""},
		"certificate, no path":              {"projected: {sources: [{podCertificate: {signerName: a, keyType: ED25519}}]}", sources + "[0].podCertificate: Required value"},
		"certificate, key type":             {"projected: {sources: [{podCertificate: {signerName: a, keyType: DSA, keyPath: a}}]}", sources + "[0].podCertificate.keyType: Unsupported value"},
		"certificate, no signer":            {"projected: {sources: [{podCertificate: {keyType: ED25519, keyPath: a}}]}", sources + "[0].podCertificate.signerName: Required value"},
		"certificate, expiration too short": {"projected: {sources: [{podCertificate: {signerName: a, keyType: ED25519, keyPath: a, maxExpirationSeconds: 60}}]}", sources + "[0].podCertificate.maxExpirationSeconds: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			got := firstError(podapi.Validate(podtest.Pod(t, "{serviceAccountName: app, volumes: [{name: v, "+test.source+"}]}")))
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.True(t, strings.HasPrefix(got, "spec.volumes[0]."+test.want), "got  %s\nwant %s", got, test.want)
		})
	}
}

func TestTokenWithoutServiceAccountRejected(t *testing.T) {
	p := podtest.Pod(t, "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]")
	want := "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"
	assert.Equal(t, want, firstError(podapi.Validate(p)))
}
