"""Our schedulers in pipelines of Stable Diffusion 1 and 3, tiny and untrained; they need transformers, of `dev`."""

from __future__ import annotations

from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch

from letgo.schedulers import EMDecayScheduler, TweedieReprojectionScheduler

pytestmark = pytest.mark.extras
pytest.importorskip("transformers", reason="pipelines of Stable Diffusion are there where transformers is")

NO_WORDS = dict.fromkeys([f"{part}{number}" for part in ("text_encoder", "tokenizer") for number in ("", "_2", "_3")])


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
    np.testing.assert_allclose(*pictures, atol=1e-5)  # weights lie elsewhere in memory: oneDNN may round otherwise
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


def tiny_flow(name: str, scheduler: object):
    torch.manual_seed(0)
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=8,
        caption_projection_dim=8,
        pooled_projection_dim=8,
        pos_embed_max_size=8,
    )
    vae = diffusers.AutoencoderKL(latent_channels=4, block_out_channels=(4,), norm_num_groups=2, shift_factor=0.1)
    return getattr(diffusers, name)(transformer=transformer, vae=vae, scheduler=scheduler, **NO_WORDS)


@pytest.mark.parametrize("kind", [TweedieReprojectionScheduler, EMDecayScheduler])
@pytest.mark.parametrize("name", ["StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline"])
def test_a_pipeline_of_a_flow_keeps_its_noise_levels(kind, name: str, tmp_path: Path) -> None:
    """Its own scheduler, ours, ours from the folder, its own again: the same timesteps, shifted, reach the network."""
    pipeline = tiny_flow(name, diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0))
    own, absent = pipeline.scheduler, dict.fromkeys(NO_WORDS)
    pipeline.scheduler = kind.from_config(own.config)
    pipeline.save_pretrained(tmp_path)
    loaded = getattr(diffusers, name).from_pretrained(tmp_path, **absent)
    assert type(loaded.scheduler) is kind
    generator = torch.Generator().manual_seed(1)
    words, pooled = torch.randn(1, 3, 8, generator=generator), torch.randn(1, 8, generator=generator)
    given = {"prompt_embeds": words, "pooled_prompt_embeds": pooled, "guidance_scale": 1.0, "num_inference_steps": 4}
    if "Img2Img" in name:
        given |= {"image": torch.zeros(1, 3, 8, 8), "strength": 0.75}
    seen, pictures = [], []

    def see(module: object, args: tuple, words: dict) -> None:
        seen[-1].append((float(words["timestep"]), words["hidden_states"].clone()))

    for one, scheduler in ((pipeline, own), (pipeline, pipeline.scheduler), (loaded, loaded.scheduler)):
        one.scheduler = scheduler
        one.set_progress_bar_config(disable=True)
        if len(seen) != 1:
            one.transformer.register_forward_pre_hook(see, with_kwargs=True)
        seen.append([])
        noise = torch.manual_seed(3)  # torch's own: this pipeline gives none to a step
        pictures.append(one(**given, height=8, width=8, output_type="np", generator=noise).images)
    expected = [1000 * 3 * s / (1 + 2 * s) for s in np.linspace(1, 3 / 1002, 4)]
    for way in seen:
        np.testing.assert_allclose([at for at, _ in way], expected[4 - len(way) :], rtol=1e-4)
        torch.testing.assert_close(way[0][1], seen[0][0][1])  # the picture, noised as its own scheduler does
    assert len(seen[0]) == (3 if "Img2Img" in name else 4)
    np.testing.assert_allclose(*pictures[1:], atol=1e-5)  # weights lie elsewhere in memory: oneDNN may round otherwise
    assert np.isfinite(pictures[1]).all()
    assert type(own).from_config(loaded.scheduler.config).config.shift == 3.0
