// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CPU returns a typical quantity of CPU. If c.Plain is false, some quantities are unusual, for example negative.
func CPU(c *Choices) resource.Quantity {
	if c.OneIn(12) && !c.Plain {
		return odd(c)
	}
	return resource.MustParse(Pick(c, "0", "100m", "1", "250m", "500m", "2", "1500m", "0.5", "10m", "1m", "3", "4", "64", "0.1",
		"1100m", "333m", "999m", "256", "300"))
}

// Bytes returns a typical quantity of memory or storage. If c.Plain is false, some quantities are unusual, for example
// negative.
func Bytes(c *Choices) resource.Quantity {
	if c.OneIn(12) && !c.Plain {
		return odd(c)
	}
	return resource.MustParse(Pick(c, "0", "128Mi", "1Gi", "64Mi", "100Mi", "200Mi", "256Mi", "512Mi", "2Gi", "4Gi", "16Gi", "128M",
		"1G", "1e9", "1.5Gi", "2.5Gi", "0.7Gi", "1000", "1", "4096", "123456789", "40Gi", "1Ti"))
}

// odd returns an unusual quantity that the API accepts. Users do not write such quantities, but a sum of quantities can be
// as unusual.
func odd(c *Choices) resource.Quantity {
	switch c.Int(6) {
	case 0:
		return *resource.NewQuantity(c.Int64(), resource.BinarySI)
	case 1:
		return *resource.NewMilliQuantity(c.Int64(), resource.DecimalSI)
	case 2:
		return *resource.NewScaledQuantity(c.Int64(), resource.Scale(Pick(c, -9, -6, -3, 0, 3, 6, 9, 12)))
	case 3:
		suffix := Pick(c, "", "m", "u", "n", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e2", "e-4", "E3")
		return resource.MustParse(strconv.FormatInt(c.Int64(), 10) + Pick(c, "", ".5", ".001", ".0000000001") + suffix)
	case 4:
		q := resource.MustParse("8E")
		for range c.Int(4) {
			q.Add(q.DeepCopy())
		}
		return q
	default:
		return resource.MustParse(Pick(c, "0", "-0", "0m", "0e5", "1n", "1u", "0.1m", "-1", "-100m", "9223372036854775807",
			"9223372036854775808", "9223372036854775807m", "9223372036854775.8", "-9223372036854775808", "100000E", "8Ei", "7.9999Ei",
			"1e30", "999999999999n", "1.0000000001", "0.0005", "1e-3"))
	}
}

// name returns a random resource name other than cpu and memory.
func name(c *Choices) corev1.ResourceName {
	if c.Plain {
		return Pick[corev1.ResourceName](c, "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")
	}
	return Pick[corev1.ResourceName](c, "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "hugepages-1Gi", "hugepages-64Ki",
		"hugepages-2048Ki", "hugepages-2097152", "hugepages-4Mi", "hugepages-1.5Gi", "hugepages-3M", "hugepages-0", "hugepages-",
		"hugepages-many", "hugepages--2Mi", "hugepages-512", "hugepages-9Ei", "storage", "pods", "attachable-volumes-x", "cpu.x", "")
}

// list returns requests or limits of random resources. One third of the lists are empty.
func list(c *Choices) corev1.ResourceList {
	switch c.Int(6) {
	case 0:
		return nil
	case 1:
		return corev1.ResourceList{}
	}
	l := corev1.ResourceList{}
	if !c.OneIn(3) {
		l[corev1.ResourceCPU] = CPU(c)
	}
	if !c.OneIn(3) {
		l[corev1.ResourceMemory] = Bytes(c)
	}
	for range Pick(c, 0, 0, 0, 1, 2, 3) {
		l[name(c)] = Bytes(c)
	}
	return l
}
