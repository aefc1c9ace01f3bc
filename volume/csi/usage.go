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

// Usage returns the usage and the health problems of the volume. It calls NodeGetVolumeStats and NodeGetVolumeHealth of the
// driver. If the driver does not have the capability GET_VOLUME_STATS, the error wraps [errors.ErrUnsupported].
func (p *Plugin) Usage(ctx context.Context, vol volume.Volume) (u volume.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, published, err := p.findPublisher(&vol)
	if err != nil || !published {
		return u, err
	}
	c, err := p.connectDriver(ctx, o.driver)
	if err != nil {
		return u, err
	}
	defer c.close()
	can, err := c.getCapabilities(ctx)
	if err != nil {
		return u, err
	}
	if can[canMeasure] {
		request := &csi.NodeGetVolumeStatsRequest{VolumeId: o.handle, VolumePath: publishPath(&vol)}
		answer, err := invoke(ctx, c, "NodeGetVolumeStats", c.node.NodeGetVolumeStats, request)
		if err != nil {
			return u, err
		}
		if len(answer.GetUsage()) == 0 {
			return u, fmt.Errorf("NodeGetVolumeStats of CSI driver %s: response has no usage", o.driver)
		}
		u = usageOf(answer.GetUsage())
	}
	if can[canReportHealth] {
		request := &csi.NodeGetVolumeHealthRequest{VolumeId: o.handle, VolumePublishPath: publishPath(&vol)}
		if can[canStage] {
			request.StagingTargetPath = vol.StagingDir
		}
		answer, err := invoke(ctx, c, "NodeGetVolumeHealth", c.node.NodeGetVolumeHealth, request)
		if err != nil {
			return u, err
		}
		u.Abnormal = describeHealth(answer.GetVolumeHealth())
	}
	if !can[canMeasure] {
		return u, fmt.Errorf("CSI driver %s: %w", o.driver, errors.ErrUnsupported)
	}
	return u, nil
}

// usageOf converts the usage that a driver returned. If several entries have the same unit, it uses the last of them, as the
// kubelet does.
func usageOf(entries []*csi.VolumeUsage) (usage volume.Usage) {
	for _, e := range entries {
		used, total, free := nonNegative(e.GetUsed()), nonNegative(e.GetTotal()), nonNegative(e.GetAvailable())
		switch e.GetUnit() {
		case csi.VolumeUsage_BYTES:
			usage.UsedBytes, usage.CapacityBytes, usage.AvailableBytes = used, total, free
		case csi.VolumeUsage_INODES:
			usage.UsedInodes, usage.Inodes, usage.FreeInodes = used, total, free
		}
	}
	return usage
}

// nonNegative returns n, or 0 if n is negative.
func nonNegative(n int64) uint64 { return uint64(max(n, 0)) }

// maxHealth is the maximum number of health problems in Usage.Abnormal.
const maxHealth = 16

// describeHealth returns the health problems of a volume as one line. It returns "" if there are none.
func describeHealth(health *csi.VolumeHealth) string {
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
		texts = append(texts, sanitizeText(strings.TrimSpace(status+" "+s.GetReason()+": "+s.GetMessage()), nil))
	}
	return strings.Join(texts, "; ")
}
