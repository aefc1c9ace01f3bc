// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ownLabels returns the labels of the domains kubernetes.io and k8s.io that a node may set on its own Node object. Source:
// KubeletLabels in k8s.io/kubelet.
func ownLabels() []string {
	return []string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, labelBetaOS, labelBetaArch,
	}
}

// ParseLabels parses labels in the format of the kubelet's flag --node-labels, such as "disk=ssd,example.com/rack=4". If a
// key is repeated, the last value is used. It does not check the labels; [Config.Validate] does.
func ParseLabels(s string) map[string]string {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		labels[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return labels
}

// validateLabels returns the joined errors of all labels that the API server would reject. It returns nil if all labels are
// valid.
func validateLabels(labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		bad := func(why ...string) {
			errs = append(errs, fmt.Errorf("node label %.200q=%.80q: %s", key, labels[key], strings.Join(why, "; ")))
		}
		if isReserved(key) {
			bad("a node sets labels of kubernetes.io and k8s.io only below kubelet.kubernetes.io and node.kubernetes.io, and " +
				strings.Join(ownLabels(), ", "))
		}
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			bad(why...)
		}
		if why := validation.IsValidLabelValue(labels[key]); len(why) > 0 {
			bad(why...)
		}
	}
	return errors.Join(errs...)
}

// isReserved reports whether a label is in a Kubernetes domain, but is not one of the labels that a node may set there.
func isReserved(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found || !isInDomain(namespace, "kubernetes.io") && !isInDomain(namespace, "k8s.io") || slices.Contains(ownLabels(), key) {
		return false
	}
	return !isInDomain(namespace, corev1.LabelNamespaceSuffixKubelet) && !isInDomain(namespace, corev1.LabelNamespaceSuffixNode)
}

// isInDomain reports whether domain equals other or is a subdomain of other.
func isInDomain(domain, other string) bool {
	return domain == other || strings.HasSuffix(domain, "."+other)
}

// ParseTaints parses taints in the format of the kubelet's flag --register-with-taints, such as
// "gpu=a100:NoSchedule,example.com/new:NoExecute". It returns an error for a taint that the API server would reject.
func ParseTaints(s string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	if s == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(s, ",") {
		pair, effect, found := strings.Cut(one, ":")
		key, value, _ := strings.Cut(pair, "=")
		if !found {
			return nil, fmt.Errorf("taint %.200q: want key=value:effect or key:effect", one)
		}
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, validateTaints(taints)
}

// validateTaints returns the joined errors of all taints that the API server would reject. It returns nil if all taints are
// valid.
func validateTaints(taints []corev1.Taint) error {
	var errs []error
	for i, t := range taints {
		bad := func(why ...string) {
			text := fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
			errs = append(errs, fmt.Errorf("taint %.300q: %s", text, strings.Join(why, "; ")))
		}
		if why := validation.IsQualifiedName(t.Key); len(why) > 0 {
			bad(why...)
		}
		if why := validation.IsValidLabelValue(t.Value); len(why) > 0 {
			bad(why...)
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			bad("the effect must be NoSchedule, PreferNoSchedule or NoExecute")
		}
		if t.TimeAdded != nil {
			bad("timeAdded is set by the control plane")
		}
		if slices.ContainsFunc(taints[:i], func(other corev1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect }) {
			bad("there is another taint with this key and effect")
		}
	}
	return errors.Join(errs...)
}
