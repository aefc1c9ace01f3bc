// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/seed81659283/nodeagent/volume"
)

// Usage asks the driver how much a volume takes, and whether something is wrong with it. The error is [errors.ErrUnsupported] for a
// driver that does not measure.
func (p *Plugin) Usage(ctx context.Context, v volume.Volume) (u volume.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, published, err := p.publisher(&v)
	if err != nil || !published {
		return u, err
	}
	c, err := p.open(ctx, o.driver)
	if err != nil {
		return u, err
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	if err != nil {
		return u, err
	}
	if can[measures] {
		request := &csi.NodeGetVolumeStatsRequest{VolumeId: o.handle, VolumePath: publishPath(&v)}
		answer, err := call(ctx, c, "NodeGetVolumeStats", c.node.NodeGetVolumeStats, request)
		if err != nil {
			return u, err
		}
		if len(answer.GetUsage()) == 0 {
			return u, fmt.Errorf("NodeGetVolumeStats of CSI driver %s: the answer has no usage", o.driver)
		}
		u = usageOf(answer.GetUsage())
	}
	if can[knowsHealth] {
		request := &csi.NodeGetVolumeHealthRequest{VolumeId: o.handle, VolumePublishPath: publishPath(&v)}
		if can[stages] {
			request.StagingTargetPath = v.StagingDir
		}
		answer, err := call(ctx, c, "NodeGetVolumeHealth", c.node.NodeGetVolumeHealth, request)
		if err != nil {
			return u, err
		}
		u.Abnormal = abnormal(answer.GetVolumeHealth())
	}
	if !can[measures] {
		return u, fmt.Errorf("CSI driver %s: %w", o.driver, errors.ErrUnsupported)
	}
	return u, nil
}

// usageOf returns what a driver says. Of several entries of a unit the last one counts, as for the kubelet.
func usageOf(entries []*csi.VolumeUsage) (u volume.Usage) {
	for _, e := range entries {
		used, total, free := amount(e.GetUsed()), amount(e.GetTotal()), amount(e.GetAvailable())
		switch e.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.UsedBytes, u.CapacityBytes, u.AvailableBytes = used, total, free
		case csi.VolumeUsage_INODES:
			u.UsedInodes, u.Inodes, u.FreeInodes = used, total, free
		}
	}
	return u
}

// amount returns what cannot be negative.
func amount(n int64) uint64 { return uint64(max(n, 0)) }

// maxHealth is how many problems of a volume are told.
const maxHealth = 16

// abnormal returns in one line what is wrong with a volume.
func abnormal(health *csi.VolumeHealth) string {
	var texts []string
	for _, s := range health.GetHealthStatuses() {
		status := ""
		switch s.GetStatus() {
		case csi.VolumeHealthErrorType_INACCESSIBLE:
			status = "Inaccessible"
		case csi.VolumeHealthErrorType_DATA_LOSS:
			status = "DataLoss"
		case csi.VolumeHealthErrorType_DEGRADED:
			status = "Degraded"
		default:
			continue
		}
		if len(texts) == maxHealth {
			break
		}
		texts = append(texts, cut(strings.TrimSpace(status+" "+s.GetReason()+": "+s.GetMessage()), nil))
	}
	return strings.Join(texts, "; ")
}
