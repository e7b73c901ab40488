"""Our schedulers in pipelines of Stable Diffusion, tiny and untrained. They need transformers, of the dev extra."""

from __future__ import annotations

from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch

from letgo.schedulers import EMDecayScheduler, TweedieReprojectionScheduler

pytestmark = pytest.mark.extras
pytest.importorskip("transformers", reason="pipelines of Stable Diffusion are there where transformers is")


def tiny(name: str, scheduler: object):
    torch.manual_seed(0)
    channels = 9 if "Inpaint" in name else 4
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=channels,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(4, 4),
        norm_num_groups=2,
        latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    parts = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    return getattr(diffusers, name)(vae=vae, unet=unet, scheduler=scheduler, requires_safety_checker=False, **parts)


@pytest.mark.parametrize("kind", [TweedieReprojectionScheduler, EMDecayScheduler])
@pytest.mark.parametrize("name", ["StableDiffusionPipeline", "StableDiffusionInpaintPipeline"])
def test_a_latent_pipeline_takes_it_and_is_saved_and_loaded_with_it(kind, name: str, tmp_path: Path) -> None:
    of_it = diffusers.PNDMScheduler(beta_schedule="scaled_linear", steps_offset=1, skip_prk_steps=True)
    pipeline = tiny(name, of_it)
    pipeline.scheduler = kind.from_config(pipeline.scheduler.config, clip_sample=False)
    pipeline.save_pretrained(tmp_path)
    absent = dict.fromkeys(("text_encoder", "tokenizer"))  # the words come as numbers
    loaded = getattr(diffusers, name).from_pretrained(tmp_path, requires_safety_checker=False, **absent)
    assert type(loaded.scheduler) is kind
    generator = torch.Generator().manual_seed(1)
    words, none = (torch.randn(1, 5, 8, generator=generator) for _ in "ab")
    given = {"prompt_embeds": words, "negative_prompt_embeds": none, "num_inference_steps": 4, "output_type": "np"}
    if "Inpaint" in name:
        given |= {"image": torch.zeros(1, 3, 16, 16), "mask_image": torch.ones(1, 1, 16, 16), "strength": 0.7}
    pictures = []
    for one in (pipeline, loaded):
        one.set_progress_bar_config(disable=True)
        drawn = one(**given, height=16, width=16, generator=torch.Generator().manual_seed(3)).images
        assert drawn.shape == (1, 16, 16, 3)
        assert np.isfinite(drawn).all()
        pictures.append(drawn)
    np.testing.assert_array_equal(*pictures)
    assert pipeline.scheduler.timesteps.tolist() == [751, 501, 251, 1]


def test_what_a_pipeline_changes_in_the_configuration_counts() -> None:
    """Stable Diffusion sets steps_offset to 1 and clip_sample to False where they are not."""
    with pytest.warns(FutureWarning):
        pipeline = tiny("StableDiffusionPipeline", TweedieReprojectionScheduler())
    scheduler = pipeline.scheduler
    scheduler.set_timesteps(4)
    assert scheduler.timesteps.tolist() == [751, 501, 251, 1]
    x = torch.full((1, 4, 8, 8), 5.0)
    assert scheduler.step(torch.zeros_like(x), 1, x).pred_original_sample.min() > 4
